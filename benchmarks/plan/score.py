"""Scores of plans: step times, gains, intervals and orders said, against those of the changed program."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median, stdev

from benchmarks.harness.shares import Share

LEAST = 0.03
"""Share of the step below which a true gain is not scored by its relative error; its sign and its interval are."""
NEAR = 0.01
"""Share of the step within which the first choice counts as the best."""
NOISE = 1.645
"""Standard errors on each side that hold 90 % of what luck does to the truth."""
PAIRS, LINES = "pairs", "lines together"
NAN = float("nan")


@dataclass(frozen=True)
class Row:
    """A remedy of one case, or several done together. Times in ns.

    Several together tell an interval of the step time afterwards, one alone of its gain; `before_ns`: what the plan
    believes the step to take now.
    """

    case: str
    remedy: str
    kind: str  # the remedy again, `PAIRS` or `LINES`
    now_ns: float
    true_ns: float
    noise_ns: float  # standard error of what was saved
    before_ns: float
    said_ns: float  # step time afterwards
    low_ns: float
    high_ns: float
    others: dict[str, float] = field(default_factory=dict)  # what each baseline says [ns]
    order: int | None = None  # place in the plan

    @property
    def gain(self) -> float:
        """What the step really saves [ns]."""
        return self.now_ns - self.true_ns

    @property
    def large(self) -> bool:
        """Whether that is enough to be scored by its relative error."""
        return abs(self.gain) > LEAST * self.now_ns

    def covered(self, allowed: float = 0.0) -> bool:
        """Whether the interval holds the truth, some standard errors of the truth itself allowed for."""
        wider = allowed * self.noise_ns
        return self.low_ns - wider <= (self.gain if self.alone else self.true_ns) <= self.high_ns + wider

    @property
    def alone(self) -> bool:
        """Whether it is one remedy."""
        return self.kind not in (PAIRS, LINES)


Said = Callable[[Row], tuple[float, float]]
"""What is said of a row: step time now and afterwards [ns]."""


def paired(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the mean time after a change, and the standard error of what it saves, of rounds that have the same luck [ns]."""
    saved = [then - now for then, now in zip(before, after, strict=True)]
    return mean(before) - mean(saved), stdev(saved) / len(saved) ** 0.5


def table(rows: Sequence[Row], baselines: Sequence[str]) -> Iterator[str]:
    """Yield the scores as a Markdown table: by remedy, of all, and of each baseline."""
    yield "| | n | machines | step time, mean | median | gain, median | coverage | + noise | sign | tau | regret |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    alone = [r for r in rows if r.alone]
    groups = defaultdict(list)
    for row in sorted(rows, key=lambda r: (not r.alone, r.kind)):
        groups[f"`{row.kind}`" if row.alone else row.kind].append(row)
    for name, mine in groups.items():
        yield _line(name, mine, _plan)
    yield _line("**the plan, each remedy alone**", alone, _plan, ranked=True)
    for name in baselines:
        yield _line(f"{name}, each alone", [r for r in alone if name in r.others], _by(name), ranked=True)
    together = [r for r in rows if not r.alone]
    yield _line("**the plan, several together**", together, _plan)
    for name in baselines:
        yield _line(f"{name}, several together", [r for r in together if name in r.others], _by(name))


def shares(rows: Sequence[Row]) -> str:
    """Return what is left of the errors of each remedy alone if the step time now were known: those of shares of it."""
    alone = [r for r in rows if r.alone]
    if not any(r.large for r in alone):
        return f"No remedy that saves {_percent(LEAST, 0)} of a step has a price in them."
    now = median({r.case: abs(r.before_ns / r.now_ns - 1.0) for r in alone}.values())
    scaled = [replace(r, before_ns=r.now_ns, said_ns=r.said_ns * r.now_ns / r.before_ns) for r in alone]
    gains = median(abs(_gain(_plan, r) - r.gain) / abs(r.gain) for r in scaled if r.large)
    times = mean(abs(r.said_ns - r.true_ns) / r.true_ns for r in scaled)
    return (
        f"The step time now is off by {_percent(now)} at the median. As shares of it, gains are off by {_percent(gains)} "
        f"at the median, step times by {_percent(times)} on average."
    )


def choices(rows: Sequence[Row]) -> str:
    """Return how often the first choice is as good as the best one: by the gain that is said, and by the plan's order."""
    if not any(row.order for row in rows):
        return ""
    by_gain, listed = (_regrets(rows, rank) for rank in (_said_gain, _listed))
    near = [_percent(mean(regret <= NEAR for regret in of), 0) for of in (by_gain, listed)]
    return (
        f"The fix that is said to save most comes within {_percent(NEAR, 0)} of the step of the best one in {near[0]} of "
        f"the cases; the plan's first line, which counts effort too, in {near[1]} (regret {_percent(mean(listed))})."
    )


def _plan(row: Row) -> tuple[float, float]:
    return row.before_ns, row.said_ns


def _by(name: str) -> Said:
    return lambda row: (row.now_ns, row.others[name])


def _gain(said: Said, row: Row) -> float:
    before, after = said(row)
    return before - after


def _line(name: str, rows: Sequence[Row], said: Said, *, ranked: bool = False) -> str:
    if not rows:
        return f"| {name} | 0" + " |" * 10
    large = [r for r in rows if r.large]
    cells = [
        str(len(rows)),
        str(len({r.case for r in rows})),
        *(_percent(of([abs(said(r)[1] - r.true_ns) / r.true_ns for r in rows])) for of in (mean, median)),
        _percent(median(abs(_gain(said, r) - r.gain) / abs(r.gain) for r in large) if large else NAN),
        *(str(Share.of([(r.case, r.covered(by)) for r in rows])) if said is _plan else "" for by in (0.0, NOISE)),
        _percent(mean((_gain(said, r) > 0) == (r.gain > 0) for r in large) if large else NAN, digits=0),
        *(_ranking(rows, said) if ranked else ("", "")),
    ]
    return " | ".join([f"| {name}", *cells]) + " |"


def _percent(value: float, digits: int = 1) -> str:
    return "" if math.isnan(value) else f"{100 * value:.{digits}f} %"


def _ranking(rows: Sequence[Row], said: Said) -> tuple[str, str]:
    tau, regret = ranking(rows, said)
    return "" if math.isnan(tau) else f"{tau:.2f}", _percent(regret)


def ranking(rows: Sequence[Row], said: Said = _plan) -> tuple[float, float]:
    """Return Kendall's tau over pairs of remedies of a case that differ by `LEAST`, and the mean regret of the first choice."""
    agree = []
    for mine in _by_case(rows):
        for a, b in itertools.combinations(mine, 2):
            if abs(a.true_ns - b.true_ns) > LEAST * a.now_ns:
                order = (_gain(said, a) - _gain(said, b)) * (a.gain - b.gain)
                agree.append((order > 0) - (order < 0))
    regrets = _regrets(rows, lambda row: _gain(said, row))
    return (mean(agree) if agree else NAN), (mean(regrets) if regrets else NAN)


def _regrets(rows: Sequence[Row], rank: Callable[[Row], float]) -> list[float]:
    """Return for each case how much slower the step is with the remedy of the highest rank than with the best one.

    As shares of the step. A rank of 0 or less: none is taken.
    """
    found = []
    for mine in _by_case([row for row in rows if row.alone]):
        first = max(mine, key=rank)
        taken = first.true_ns if rank(first) > 0 else first.now_ns
        best = min([r.true_ns for r in mine] + [first.now_ns])
        found.append((taken - best) / first.now_ns)
    return found


def _by_case(rows: Sequence[Row]) -> list[list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row.case].append(row)
    return list(found.values())


def _said_gain(row: Row) -> float:
    return _gain(_plan, row)


def _listed(row: Row) -> float:
    return 1.0 / row.order if row.order else 0.0
