"""Scores graph-mode answers against cases: `python -m benchmarks.graph_mode.score DIR… [--json out.json]`.

Works for every folder in the layout of README.md, whoever made it. The predictor sees the trace, once with the step
time that it takes without the profiler and once without it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.graph_mode.answer import VARIANTS, Answer, NoAnswerError, is_variant
from benchmarks.graph_mode.case import EAGER, Case, read_cases
from benchmarks.graph_mode.knowledge import answers
from benchmarks.harness.shares import Share

QUIET = 0.05
"""A case is quiet when its truth repeats within this share."""
HOST_BOUND = 1.15
"""A case is host-bound when its step takes more than this many times the device's busy time."""
BAND = 0.05
"""Speed-ups within this share of 1 have no sign worth scoring."""
RESAMPLES = 2000
ONE_ANSWER = ("n", "S mean", "median", "sign", "coverage")
OURS, UNTOLD = "hpuprof", "hpuprof, step time not told"
BASELINES = ("profiled ÷ busy", "unprofiled ÷ busy", "unprofiled ÷ uncorrected replay", "no gain")


@dataclass(frozen=True)
class Guess:
    """A predicted speed-up and step time [ns] of one mode, with the speed-up's 90 % interval where there is one."""

    speedup: float
    step_ns: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """One mode of one case: the truth, and what each estimator said."""

    case: str
    family: str
    mode: str
    host_bound: bool | None
    quiet: bool
    noise: float
    step_ns: float
    speedup: float
    guesses: dict[str, Guess]


@dataclass(frozen=True)
class Scored:
    """One case as a whole."""

    case: str
    verdict: str
    best: str
    best_speedup: float
    chosen: str | None
    regret: float | None
    replay_error: float | None
    quiet: bool


def score_case(case: Case, answer: Answer, untold: Answer) -> tuple[list[Row], Scored]:
    """Compare the answers with and without the step time with the truth of their case."""
    eager = case.step_time[EAGER].median
    base = case.unprofiled.step_ns if case.unprofiled else eager
    host_bound = None if not answer.busy_ns else base > HOST_BOUND * answer.busy_ns
    quiet = case.noise <= QUIET
    rows = [
        Row(
            case.name,
            case.family,
            mode,
            host_bound,
            quiet,
            case.noise,
            taken.median,
            eager / taken.median,
            guesses_of(mode, case, answer, untold),
        )
        for mode, taken in case.step_time.items()
        if mode != EAGER
    ]
    return rows, whole_case(case, answer)


def guesses_of(mode: str, case: Case, answer: Answer, untold: Answer) -> dict[str, Guess]:
    """Return what the answers say of a mode, and what simple estimators say, given what the predictor is given."""
    found: dict[str, Guess] = {}
    unprofiled, busy = case.unprofiled.step_ns if case.unprofiled else None, answer.busy_ns
    if answer.profiled_step_ns and busy:
        found["profiled ÷ busy"] = Guess(answer.profiled_step_ns / busy, busy)
    if unprofiled and busy:
        found["unprofiled ÷ busy"] = Guess(unprofiled / busy, busy)
    offers = {OURS: answer.offer_for(mode, case), UNTOLD: untold.offer_for(mode, case)}
    for name, offer in offers.items():
        if offer is not None:
            found[name] = Guess(offer.speedup.median, offer.step_ns.median, offer.speedup.low, offer.speedup.high)
    if (offer := offers[OURS]) is not None:
        recommended = (offer.region, offer.drops_sync) == (answer.region, answer.drops_sync)
        if unprofiled and answer.uncorrected_step_ns and recommended:
            # Reports tell the uncorrected step time of the recommended option alone.
            guess = Guess(unprofiled / answer.uncorrected_step_ns, answer.uncorrected_step_ns)
            found["unprofiled ÷ uncorrected replay"] = guess
    if unprofiled:
        found["no gain"] = Guess(1.0, unprofiled)
    return found


def whole_case(case: Case, answer: Answer) -> Scored:
    """Score the recommendation: what following it costs against the best mode that was measured with the waits left in."""
    measured = {mode: r.median for mode, r in case.step_time.items() if not is_variant(mode)}
    best = min(measured, key=lambda mode: measured[mode])
    chosen: str | None = None
    if answer.verdict in ("no", "unlikely"):
        chosen = EAGER
    elif answer.verdict in ("yes", "likely", "not yet", "marginal"):
        chosen = recommended_mode([mode for mode in measured if mode != EAGER], case, answer)
    return Scored(
        case.name,
        answer.verdict,
        best,
        measured[EAGER] / measured[best],
        chosen,
        None if chosen is None else measured[chosen] / measured[best] - 1,
        answer.replay_error,
        case.noise <= QUIET,
    )


def recommended_mode(modes: Sequence[str], case: Case, answer: Answer) -> str | None:
    """Return the recommended mode or, where that was never run, the measured one that is said to be fastest. None when none was offered."""
    offers = {mode: answer.offer_for(mode, case) for mode in modes}
    known = {mode: offer for mode, offer in offers.items() if offer is not None}
    for mode, offer in known.items():
        if offer.region == answer.region:
            return mode
    return min(known, key=lambda mode: known[mode].step_ns.median, default=None)


# ---------------------------------------------------------------------------------------------------------------- summary


@dataclass(frozen=True)
class Accuracy:
    """How well one estimator did on a group of rows. Errors are shares of the truth; None where nothing can be said."""

    rows: int
    missing: int
    machines: int  # cases that the rows are of
    speedup_mean: float | None
    speedup_mean_low: float | None  # 90 % interval of the mean, from drawing cases again
    speedup_mean_high: float | None
    speedup_median: float | None
    speedup_p90: float | None
    step_mean: float | None
    step_median: float | None
    step_p90: float | None
    sign: float | None
    signed_rows: int
    coverage: Share | None
    coverage_with_noise: float | None


def accuracy(rows: Sequence[Row], estimator: str) -> Accuracy:
    """Summarize an estimator over rows. `missing`: rows that it said nothing about."""
    known = [(r, r.guesses[estimator]) for r in rows if estimator in r.guesses]
    speedup = [abs(g.speedup - r.speedup) / r.speedup for r, g in known]
    step = [abs(g.step_ns - r.step_ns) / r.step_ns for r, g in known]
    signed = [(r, g) for r, g in known if abs(r.speedup - 1) > BAND]
    ranged = [(r, g) for r, g in known if g.low is not None and g.high is not None]
    mean, middle, p90 = _spread(speedup)
    return Accuracy(
        len(known),
        len(rows) - len(known),
        len({r.case for r, _ in known}),
        mean,
        *_resampled([(r.case, e) for (r, _), e in zip(known, speedup, strict=True)]),
        middle,
        p90,
        *_spread(step),
        _share((g.speedup - 1) * (r.speedup - 1) > 0 for r, g in signed),
        len(signed),
        Share.of([(r.case, g.low <= r.speedup <= g.high) for r, g in ranged]),
        _share(g.low <= r.speedup * (1 + r.noise) and r.speedup * (1 - r.noise) <= g.high for r, g in ranged),
    )


def _spread(errors: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not errors:
        return None, None, None
    return float(np.mean(errors)), float(np.median(errors)), float(np.quantile(errors, 0.9))


def _resampled(errors: Sequence[tuple[str, float]]) -> tuple[float | None, float | None]:
    """Return the 90 % interval of a mean error by bootstrap. Whole cases are drawn: modes of one case err together."""
    if not errors:
        return None, None
    cases = sorted({case for case, _ in errors})
    number = {case: i for i, case in enumerate(cases)}
    totals, counts = np.zeros(len(cases)), np.zeros(len(cases))
    for case, error in errors:
        totals[number[case]] += error
        counts[number[case]] += 1
    drawn = np.random.default_rng(0).integers(0, len(cases), (RESAMPLES, len(cases)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.05, 0.95])
    return float(low), float(high)


def _share(hits: Iterable[bool]) -> float | None:
    found = list(hits)
    return sum(found) / len(found) if found else None


GROUPS: dict[str, Callable[[Row], bool]] = {
    "all": lambda _: True,
    "quiet": lambda r: r.quiet,
    "noisy": lambda r: not r.quiet,
    "host-bound": lambda r: r.host_bound is True,
    "device-bound": lambda r: r.host_bound is False,
    "quiet, host-bound": lambda r: r.quiet and r.host_bound is True,
    "quiet, device-bound": lambda r: r.quiet and r.host_bound is False,
}


def summarize(rows: Sequence[Row], cases: Sequence[Scored]) -> dict[str, object]:
    """Return every table as plain values."""
    kept = [r for r in rows if not is_variant(r.mode)]
    by_mode = {"every mode": kept}
    for mode in sorted({kind(r.mode) for r in rows}):
        by_mode[mode] = [r for r in rows if kind(r.mode) == mode]
    groups = {
        f"{mode}, {name}": [r for r in those if chosen(r)]
        for mode, those in by_mode.items()
        for name, chosen in GROUPS.items()
    }
    regrets = {
        name: [s.regret for s in cases if s.regret is not None and (name == "all" or s.quiet)]
        for name in ("all", "quiet")
    }
    replay = [s.replay_error for s in cases if s.replay_error is not None]
    return {
        "cases": len(cases),
        "quiet_cases": sum(s.quiet for s in cases),
        "accuracy": {
            group: {estimator: asdict(accuracy(chosen, estimator)) for estimator in (OURS, UNTOLD, *BASELINES)}
            for group, chosen in groups.items()
            if chosen
        },
        "families": {
            family: {e: asdict(accuracy([r for r in kept if r.family == family], e)) for e in (OURS, UNTOLD)}
            for family in sorted({r.family for r in kept})
        },
        "regret": {name: dict(zip(("mean", "median", "p90"), _spread(r), strict=True)) for name, r in regrets.items()},
        "replay_error": dict(zip(("mean", "median", "p90"), _spread(replay), strict=True)),
        "verdicts": {
            truth: dict(sorted(Counter(s.verdict for s in cases if outcome(s) == truth).items()))
            for truth in ("gain", "no gain")
        },
    }


def kind(mode: str) -> str:
    """Return the group that a mode is scored in: modules count as one, whatever their names."""
    variant = next((v for v in VARIANTS if mode.endswith(v)), "")
    return f"modules{variant}" if mode.startswith("module") else mode


def outcome(case: Scored) -> str:
    """Return whether the best mode that was measured is worth having."""
    return "gain" if case.best_speedup > 1 + BAND else "no gain"


def tables(summary: dict[str, object]) -> list[tuple[str, list[list[str]]]]:
    """Return titled tables, header first."""
    found = []
    for group, estimators in summary["accuracy"].items():  # type: ignore[attr-defined]
        head = (
            "estimator, n, machines, S mean, 90 % interval, median, p90, T mean, median, p90, sign, coverage, + noise"
        )
        rows = [head.split(", ")]
        for estimator, a in estimators.items():
            if not a["rows"]:
                continue
            within = f"{percent(a['speedup_mean_low'])} – {percent(a['speedup_mean_high'])}"
            values = [a[k] for k in ("speedup_median", "speedup_p90", "step_mean", "step_median", "step_p90")]
            told = [
                *map(percent, values),
                percent(a["sign"]),
                covered(a["coverage"]),
                percent(a["coverage_with_noise"]),
            ]
            count = f"{a['rows']}/{a['rows'] + a['missing']}" if a["missing"] else str(a["rows"])
            rows.append([estimator, count, str(a["machines"]), percent(a["speedup_mean"]), within, *told])
        found.append((group, rows))
    found.append(("families, every mode", families(summary["families"])))  # type: ignore[arg-type]
    rows = [["what", "mean", "median", "p90"]]
    rows += [[f"regret, {name}", *map(percent, r.values())] for name, r in summary["regret"].items()]  # type: ignore[attr-defined]
    rows.append(["replay error", *map(percent, summary["replay_error"].values())])  # type: ignore[attr-defined]
    found.append(("recommendation and replay", rows))
    said = ["yes", "likely", "not yet", "marginal", "unlikely", "no", "cannot say"]
    rows = [["best mode measured", *said]]
    for truth, counts in summary["verdicts"].items():  # type: ignore[attr-defined]
        rows.append([truth, *[str(counts.get(verdict, 0)) for verdict in said]])
    found.append(("verdicts, cases", rows))
    return found


def families(by_family: dict[str, dict[str, dict[str, float]]]) -> list[list[str]]:
    """Return the table of families, header first: the answer with the step time told, and without it."""
    rows = [
        ["family", "machines", *(of + head for of in ("", "untold: ") for head in ONE_ANSWER)],
    ]
    for family, estimators in by_family.items():
        row = [family, str(max(a["machines"] for a in estimators.values()))]
        for a in estimators.values():
            told = [percent(a[k]) for k in ("speedup_mean", "speedup_median", "sign")]
            row += [f"{a['rows']}/{a['rows'] + a['missing']}", *told, covered(a["coverage"])]
        rows.append(row)
    return rows


def each(rows: Sequence[Row]) -> list[list[str]]:
    """Return a table of every mode of every case: measured, and as predicted with the step time and without."""
    head = ["case", "captured", "measured [ms]", "speed-up", "predicted (90 %)", "step time not told", "inside"]
    body = []
    for row in rows:
        ours, untold = (row.guesses.get(name) for name in (OURS, UNTOLD))
        inside = ours is not None and ours.low is not None and ours.low <= row.speedup <= ours.high
        body.append(
            [row.case, row.mode, f"{row.step_ns / 1e6:.3g}", f"{row.speedup:.3g}", *map(_said, (ours, untold)), "yes" if inside else "no"]
        )  # fmt: skip
    return [head, *body]


def _said(guess: Guess | None) -> str:
    if guess is None:
        return "–"
    return f"{guess.speedup:.3g}" + ("" if guess.low is None else f" ({guess.low:.3g} to {guess.high:.3g})")


def covered(coverage: dict[str, float] | None) -> str:
    """Return a coverage as text, with the interval that so many machines leave it."""
    return "–" if coverage is None else str(Share(**coverage))  # type: ignore[arg-type]


def percent(share: float | None) -> str:
    """Return a share as text."""
    return "–" if share is None else f"{share:.1%}"


def as_markdown(title: str, rows: list[list[str]]) -> str:
    """Return a table as Markdown."""
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] + ["---:"] * (len(head) - 1), *body)]
    return f"### {title}\n\n" + "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Score folders; return the exit code: 0 done, 3 when there is nothing to score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders of cases")
    parser.add_argument("--each", action="store_true", help="print each mode of each case first")
    parser.add_argument("--json", type=Path, help="write everything here, case by case")
    given = parser.parse_args(arguments)
    import hpuprof

    rows: list[Row] = []
    cases: list[Scored] = []
    failed: list[str] = []
    try:
        for case, trace in read_cases(given.folders):
            try:
                told, untold = answers(case, trace)
            except hpuprof.HpuprofError as error:
                failed.append(f"{case.name}: {error}")
                continue
            more, whole = score_case(case, told, untold)
            rows += more
            cases.append(whole)
    except (NoAnswerError, ValueError) as error:
        print(f"cannot score: {error}", file=sys.stderr)
        return 3
    for line in failed:
        print(f"not analyzed: {line}", file=sys.stderr)
    if not cases:
        print("cannot score: no trace could be analyzed", file=sys.stderr)
        return 3
    summary = summarize(rows, cases)
    summary["failed"] = failed
    if given.json:
        document = {"summary": summary, "cases": [asdict(c) for c in cases], "rows": [asdict(r) for r in rows]}
        given.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases, {summary['quiet_cases']} quiet, {len(failed)} not analyzed\n")
    print("S: error of the speed-up; T: error of the step time in graph mode; coverage: of the 90 % interval\n")
    for title, table in ([("each case", each(rows))] if given.each else []) + tables(summary):
        print(as_markdown(title, table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
