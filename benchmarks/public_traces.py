"""Public traces read by an expert's eye: `python -m benchmarks.public_traces FOLDER [--only WORD] [--markdown]`.

`public_traces.json` names each trace (repository, commit, path), what it is, and what an expert would say. FOLDER holds
the files, each under `<owner>+<name>/<path>`; those that are missing are left out. None of them is part of this
repository.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import hpuprof

LIST = Path(__file__).with_suffix(".json")
SLACK = 1.05
"""A speed-up may be this factor outside the range that the recorded times allow."""
BOUND_SLACK = 1.25
"""So far may an upper bound lie above it: short kernels take 0.84 of their time in a graph, and the slack."""


class PlanOpinion(msgspec.Struct, frozen=True):
    """What an expert says of the plan's first line.

    `first`: remedies, or reasons for none, that are right; `gain`: between which the share of the step that it saves
    lies by the recorded times.
    """

    first: list[str]
    gain: tuple[float, float] | None
    why: str
    blind: bool | None = None  # whether the line was right when it was first made; None: the opinion came later


class Opinion(msgspec.Struct, frozen=True):
    """What an expert says of a trace.

    `verdicts`: those that are right. `range`: between which the speed-up lies by the recorded times; None for no limit.
    `says`: what an answer must name, as a pattern.
    """

    repo: str
    commit: str
    path: str
    what: str
    expert: str
    verdicts: list[str]
    range: tuple[float, float | None] | None = None
    says: str | None = None
    blind: bool | None = None  # whether the answer was right when it was first given; None: the opinion came later
    plan: PlanOpinion | None = None


@dataclass(frozen=True)
class Said:
    """What hpuprof says: verdict, lowest, middle and highest speed-up or bounds without a middle, and all its sentences."""

    verdict: str
    sentence: str
    low: float | None = None
    median: float | None = None
    high: float | None = None
    text: str = ""


def said_of(trace: Path) -> Said:
    """Analyze a trace; a trace that cannot be read has the error as its sentence."""
    try:
        report = hpuprof.analyze(trace, jobs=1)
    except hpuprof.HpuprofError as error:
        told = str(error).replace(str(trace), trace.name)
        return Said("error", told, text=told)
    found, head = report.data.graph_mode, report.data.headline
    if found is None:
        return Said("none", head.sentence, text=head.sentence)
    span: Any = found.speedup or getattr(found, "bounds", None)
    texts = [head.sentence, found.sentence, *(f"{f.title}: {f.evidence}" for f in report.data.findings)]
    return Said(
        found.verdict,
        found.sentence,
        *((span.low, getattr(span, "median", None), span.high) if span else (None, None, None)),
        text="\n".join(texts),
    )


def faults(opinion: Opinion, said: Said) -> list[str]:
    """Return what an expert would not have said; empty when the answer is right."""
    found = []
    # What must go first makes a gain marginal in opinions written before there was a word for it.
    if said.verdict not in (*opinion.verdicts, *(["not yet"] if "marginal" in opinion.verdicts else [])):
        found.append(f"{said.verdict}, not {' or '.join(opinion.verdicts)}")
    low, high = opinion.range or (None, None)
    middle, slack = (said.high, BOUND_SLACK) if said.median is None else (said.median, SLACK)
    if high is not None and middle is not None and middle > high * slack:
        found.append(f"{middle:.2f}× where at most {high:.2f}× is possible")
    if low is not None and middle is not None and middle < low / SLACK:
        found.append(f"{middle:.2f}× where at least {low:.2f}× is to be had")
    if opinion.says is not None and not re.search(opinion.says, said.text):
        found.append(f"nothing about “{opinion.says}”")
    return found


def judged(folder: Path, only: str = "") -> Iterator[tuple[Opinion, Said, list[str]]]:
    """Yield each trace that is there with what hpuprof says and what is wrong with it."""
    for opinion, trace in listed(folder, only):
        said = said_of(trace)
        yield opinion, said, faults(opinion, said)


def listed(folder: Path, only: str = "") -> Iterator[tuple[Opinion, Path]]:
    """Yield each trace of the list that is there."""
    for opinion in msgspec.json.decode(LIST.read_bytes(), type=list[Opinion]):
        trace = folder / opinion.repo.replace("/", "+") / opinion.path
        if trace.exists() and only in f"{opinion.repo} {opinion.path}":
            yield opinion, trace.resolve()


def scores(judged_now: Iterable[tuple[bool | None, bool]]) -> str:
    """Say how many answers are right now, and of those judged blind, how many were at first: (at first, now) each."""
    rows = list(judged_now)
    blind = [(at_first, now) for at_first, now in rows if at_first is not None]
    now = f"{len(rows)} traces: {sum(now for _, now in rows)} right"
    if not blind:
        return now
    first, then = (sum(map(bool, column)) for column in zip(*blind, strict=True))
    return f"{now}; of {len(blind)} whose opinion was written before, {first} were at first and {then} are now"


def link_of(opinion: Opinion) -> str:
    """Return a link to the file at its commit."""
    url = f"https://github.com/{opinion.repo}/blob/{opinion.commit[:12]}/{opinion.path.split(': ')[0]}"
    return f"[{opinion.repo.split('/')[1]}, {Path(opinion.path).name[:48]}]({url})"


def as_markdown(rows: Iterable[tuple[Opinion, Said, list[str]]]) -> str:
    """Return the table of traces."""
    lines = ["| trace | what it is | hpuprof | an expert, and why | right |", "| --- | --- | --- | --- | --- |"]
    for opinion, said, wrong in rows:
        right = "yes" if not wrong else "no: " + "; ".join(wrong)
        lines.append(
            f"| {link_of(opinion)} | {opinion.what} | {said.sentence} | {opinion.expert} | {right.replace('|', ', ')} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge the traces of a folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public_traces", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="traces whose repository or path holds this")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/evidence/public_traces.md")
    parser.add_argument("--json", type=Path, help="write the answers here")
    given = parser.parse_args()
    rows = []
    for opinion, said, wrong in judged(given.folder, given.only):
        rows.append((opinion, said, wrong))
        if not given.markdown:
            span = "" if said.high is None else f" {said.low:.2f}-{said.high:.2f}"
            print(f"{'no ' if wrong else 'yes'} {opinion.path}: {said.verdict}{span} {'; '.join(wrong)}", flush=True)
    if given.json:
        answers = [{"path": o.path, "verdict": s.verdict, "sentence": s.sentence, "wrong": w} for o, s, w in rows]
        given.json.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if given.markdown:
        print(as_markdown(rows), end="")
    unsure = sum(s.verdict == "cannot say" for _, s, _ in rows)
    print(f"\n{scores((o.blind, not w) for o, _, w in rows)}; {unsure} cannot say")


if __name__ == "__main__":
    main()
