"""Gates: conditions that fail a run, for CI. Parses them, evaluates them on a report or a comparison.

Grammar (blanks between the parts are optional)::

    gate   = metric op number [unit]      fails when the metric's value meets the condition
           | metric ":" number "%"        fails when B is worse than A by more than this, beyond noise (compare only)
           | "finding" ":" code           fails when the report has this finding or diagnostic
           | "graph_mode" ":" verdict     fails when this is the answer to whether graph mode would help
    op     = ">" | ">=" | "<" | "<=" | "=="
    unit   = ns us µs ms s min | % | B kB MB GB TB KiB MiB GiB TiB

Times and sizes other than 0 need a unit; a fraction without % is at most 1. Values are compared exactly, not as
printed. A gate on an unknown value, on a change beyond its limit that noise may have made, or on a
verdict where hpuprof cannot say, cannot be evaluated: it neither passes nor fails.

A median or percentile need not move where some steps stall, though the run pays for that. So a gate on one of the step
time passes only where what recurs passes, too: a change by that of the mean, an upper limit by the median and what
pauses cost of the mean step. Gates on typical_step_time_mean leave pauses out.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, get_args

import msgspec

from hpuprof.comparison.result import Change, Comparison
from hpuprof.comparison.sentences import STEADY
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import EXIT_GATE, EXIT_INPUT, EXIT_OK, UsageError, did_you_mean
from hpuprof.model.metrics import BY_NAME, Metric, MetricSpec
from hpuprof.model.prediction import Verdict
from hpuprof.report.findings import BY_CODE
from hpuprof.report.model import GateResult, Report

M = TypeVar("M", Metric, MetricSpec)

PASSED, FAILED, UNKNOWN = "passed", "failed", "unknown"

_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_PERCENTILES, _MEAN = ("step_time_p50", "step_time_p90"), "step_time_mean"
_SCALES: dict[str, tuple[str, float]] = {
    "ns": ("ns", 1),
    "us": ("ns", 1e3),
    "µs": ("ns", 1e3),
    "μs": ("ns", 1e3),
    "ms": ("ns", 1e6),
    "s": ("ns", 1e9),
    "min": ("ns", 60e9),
    "%": ("fraction", 0.01),
    "B": ("bytes", 1),
    "kB": ("bytes", 1e3),
    "KB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12),
    "KiB": ("bytes", 2**10),
    "MiB": ("bytes", 2**20),
    "GiB": ("bytes", 2**30),
    "TiB": ("bytes", 2**40),
    "FLOP": ("flop", 1),
    "MFLOP": ("flop", 1e6),
    "GFLOP": ("flop", 1e9),
    "TFLOP": ("flop", 1e12),
    "PFLOP": ("flop", 1e15),
}
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_VALUE = re.compile(
    rf"\s*(?P<metric>[A-Za-z_]\w*)\s*(?P<op>>=|<=|==|>|<)\s*(?P<number>{_NUMBER})\s*(?P<unit>[A-Za-zµμ%]*)\s*"
)
_CHANGE = re.compile(rf"\s*(?P<metric>[A-Za-z_]\w*)\s*:\s*(?P<number>{_NUMBER})\s*%\s*")
_FINDING = re.compile(r"\s*finding\s*:\s*(?P<code>\w+)\s*")
_VERDICT = re.compile(r"\s*graph_mode\s*:\s*(?P<verdict>[A-Za-z]+(?:[ _][A-Za-z]+)*)\s*")
_FORMS = (
    "write METRIC OP VALUE, such as 'device_idle_fraction > 30%', or finding:HP201, or graph_mode:yes, "
    "or in compare METRIC:5%"
)


@dataclass(frozen=True)
class Gate:
    """One parsed gate. `kind`: value, change, finding or verdict."""

    text: str
    kind: str
    subject: str  # metric's name, finding's code or verdict
    op: str = ""
    number: float = 0.0
    unit: str = ""


def parse_gate(text: str) -> Gate:
    """Parse one gate. Raises UsageError naming the fault; `evaluate` checks whether the metric exists."""
    shown = text.strip()
    if match := _FINDING.fullmatch(text):
        code = match["code"].upper()
        known = [*BY_CODE, *DIAGNOSTICS]
        if code not in known:
            raise UsageError(
                f"gate {shown!r}: no finding {match['code']!r}",
                hint=did_you_mean(code, known, "`hpuprof explain` lists all codes"),
            )
        return Gate(shown, "finding", code)
    if match := _VERDICT.fullmatch(text):
        verdict = match["verdict"].lower().replace("_", " ")
        if verdict not in _VERDICTS:
            raise UsageError(f"gate {shown!r}: no verdict {match['verdict']!r}", hint=f"one of {', '.join(_VERDICTS)}")
        return Gate(shown, "verdict", verdict)
    if match := _CHANGE.fullmatch(text):
        number = float(match["number"])
        if not 0 <= number < math.inf:
            raise UsageError(
                f"gate {shown!r}: {match['number']} % is not a limit", hint="give a percentage of 0 or more"
            )
        return Gate(shown, "change", match["metric"], number=number / 100)
    if match := _VALUE.fullmatch(text):
        unit = match["unit"]
        if unit and unit not in _SCALES:
            close = [u for u in _SCALES if u.lower() == unit.lower()]
            raise UsageError(
                f"gate {shown!r}: no unit {unit!r}",
                hint=f"did you mean {' or '.join(close)}?" if close else f"one of {' '.join(_SCALES)}",
            )
        number = float(match["number"])
        if not math.isfinite(number):
            raise UsageError(f"gate {shown!r}: the number is out of range", hint=_FORMS)
        return Gate(shown, "value", match["metric"], match["op"], number, unit)
    raise UsageError(f"cannot parse gate {shown!r}", hint=_FORMS)


def parse_gates(texts: Iterable[str], *, changes: bool) -> list[Gate]:
    """Parse gates and check metrics' names. `changes`: whether METRIC:N% is allowed. Raises UsageError."""
    gates = [parse_gate(text) for text in texts]
    for gate in gates:
        if gate.kind == "change" and not changes:
            raise UsageError(
                f"gate {gate.text!r} needs two runs to compare",
                hint="use it in `hpuprof compare`, or give a condition on the value, such as 'step_time_p50 > 12ms'",
            )
        if gate.kind in ("value", "change"):
            _check(gate, BY_NAME)
    return gates


def _check(gate: Gate, known: Mapping[str, M]) -> M:
    """Return a gate's metric. Raises UsageError when there is none or the gate does not fit it."""
    metric = known.get(gate.subject)
    if metric is None:
        raise UsageError(
            f"gate {gate.text!r}: no metric {gate.subject!r}",
            hint=did_you_mean(gate.subject, known, f"one of {', '.join(known)}"),
        )
    if gate.kind == "change" and metric.polarity == "none":
        raise UsageError(
            f"gate {gate.text!r}: neither direction of {gate.subject} is worse",
            hint="give a condition on the value, such as METRIC > VALUE",
        )
    if gate.kind == "value" and gate.unit and _SCALES[gate.unit][0] != metric.unit:
        fitting = [u for u, (of, _) in _SCALES.items() if of == metric.unit]
        raise UsageError(
            f"gate {gate.text!r}: {gate.subject} is not measured in {gate.unit}",
            hint=f"its unit is {metric.unit}: {'use ' + ' '.join(fitting) if fitting else 'give a plain number'}",
        )
    if gate.kind == "value" and not gate.unit:
        _check_plain(gate, metric.unit)
    return metric


def _check_plain(gate: Gate, unit: str) -> None:
    """Refuse a limit without a unit that means another one: 30 for 30 %, 12 for 12 ms. Raises UsageError."""
    number = f"{gate.number:g}"
    if unit == "fraction" and abs(gate.number) > 1:
        raise UsageError(
            f"gate {gate.text!r}: {gate.subject} is a fraction, and {number} is more than all of it",
            hint=f"write {number}% or {gate.number / 100:g}",
        )
    if unit in ("ns", "bytes") and gate.number:
        raise UsageError(
            f"gate {gate.text!r}: {number} of what?",
            hint=f"give a unit, such as {number}{'ms' if unit == 'ns' else 'GB'}",
        )


def evaluate(gates: Sequence[Gate], report: Report) -> list[GateResult]:
    """Evaluate gates on one report."""
    codes = {f.code: f.evidence for f in report.data.findings} | {d.code: d.text for d in report.data.diagnostics}
    results = []
    for gate in gates:
        if gate.kind == "finding":
            results.append(_found(gate, codes))
        elif gate.kind == "verdict":
            results.append(_answered(gate, report))
        else:
            results.append(_with_pauses(gate, _limit(gate, _check(gate, report.metrics)), report.metrics))
    return results


def evaluate_comparison(gates: Sequence[Gate], comparison: Comparison, b: Report) -> list[GateResult]:
    """Evaluate gates on a comparison: on values and findings of B, with METRIC:N% on the change from A to B."""
    results = []
    for gate in gates:
        if gate.kind == "change":
            metric = _check(gate, b.metrics)
            result = _worsening(gate, comparison.change(metric.name), metric)
            if metric.name in _PERCENTILES and result.outcome == PASSED:
                mean = _worsening(gate, comparison.change(_MEAN), b.metrics[_MEAN])
                if mean.outcome != PASSED:
                    result = msgspec.structs.replace(mean, text=f"{result.text}, but {mean.text}")
            results.append(result)
        else:
            results += evaluate([gate], b)
    return results


def with_gates(report: Report, results: list[GateResult]) -> Report:
    """Return the report with the outcomes of its gates."""
    return Report(msgspec.structs.replace(report.data, gates=results))


def exit_code(results: Sequence[GateResult]) -> int:
    """Return 1 when a gate failed, else 3 when one could not be evaluated, else 0."""
    outcomes = {r.outcome for r in results}
    return EXIT_GATE if FAILED in outcomes else EXIT_INPUT if UNKNOWN in outcomes else EXIT_OK


def _result(gate: Gate, outcome: str, value: float | None, text: str, unit: str = "fraction") -> GateResult:
    return GateResult(gate=gate.text, outcome=outcome, value=value, unit=unit, text=text)


def _found(gate: Gate, codes: Mapping[str, str]) -> GateResult:
    if gate.subject in codes:
        return _result(gate, FAILED, 1, f"{gate.subject} was found: {codes[gate.subject]}", "count")
    return _result(gate, PASSED, 0, f"{gate.subject} was not found", "count")


def _answered(gate: Gate, report: Report) -> GateResult:
    """Hold the graph-mode verdict against that of the gate; without one, no other verdict can be ruled out."""
    answer = report.graph_mode
    hit = answer.verdict == gate.subject
    outcome = FAILED if hit else UNKNOWN if answer.verdict == "cannot say" else PASSED
    return _result(gate, outcome, None if outcome == UNKNOWN else int(hit), answer.sentence, "count")


def _limit(gate: Gate, metric: Metric) -> GateResult:
    if metric.value is None:
        return _result(gate, UNKNOWN, None, f"{metric.name} is unknown in these traces", metric.unit)
    # Scaling the value would round it; scaling the limit does not: 30 % is compared as 0.3.
    limit = gate.number * _SCALES[gate.unit][1] if gate.unit else gate.number
    if gate.unit == "%":
        limit = gate.number / 100
    hit = _OPERATORS[gate.op](metric.value, limit)
    text = f"{metric.name} is {_exact(metric.value, gate.unit)}"
    return _result(gate, FAILED if hit else PASSED, metric.value, text, metric.unit)


def _with_pauses(gate: Gate, result: GateResult, metrics: Mapping[str, Metric]) -> GateResult:
    """Fail an upper limit of a percentile of the step time that the median with what pauses cost exceeds."""
    median, mean, share = (metrics[name].value for name in ("step_time_p50", _MEAN, "pause_fraction"))
    upper = gate.subject in _PERCENTILES and gate.op in (">", ">=") and result.outcome == PASSED
    if not upper or median is None or mean is None or not share:
        return result
    paid = _limit(gate, msgspec.structs.replace(metrics[gate.subject], value=median + share * mean))
    if paid.outcome == PASSED:
        return result
    paused = _exact(median + share * mean, gate.unit)
    return msgspec.structs.replace(paid, text=f"{result.text}, but the median with pauses that recur is {paused}")


def _exact(value: float, unit: str) -> str:
    """Write a value in the gate's unit, with enough digits to see on which side of a limit it lies."""
    scale = _SCALES[unit][1] if unit else 1.0
    number = f"{value / scale:.6g}" if not (unit == "" and isinstance(value, int)) else str(value)
    return f"{number} {unit}".strip()


def _worsening(gate: Gate, change: Change | None, metric: Metric) -> GateResult:
    result = partial(_result, gate)
    if change is None or change.a is None or change.b is None or change.delta is None:
        return result(UNKNOWN, None, f"{metric.name} is {change.note if change else 'unknown in A and B'}")
    worse = change.delta if change.polarity == "lower" else -change.delta
    if change.a == 0:
        if worse <= 0:
            return result(PASSED, 0.0, f"{metric.name} did not get worse")
        share = None
    else:
        share = worse / abs(change.a)
    amount = f"got worse by {100 * share:.4g} %" if share is not None else "got worse, from zero"
    if share is not None and share <= gate.number:
        text = f"{metric.name} {amount}" if share > 0 else f"{metric.name} did not get worse"
        return result(PASSED, share, text)
    if change.low is None or change.high is None:
        if change.verdict == "unknown":  # both values are known, the noise is not
            return result(
                UNKNOWN, share, f"{metric.name} {amount}, but too few steps were recorded to tell this from noise"
            )
        return result(FAILED, share, f"{metric.name} {amount} (noise unknown)")
    if change.low <= 0 <= change.high:
        # `compare` cannot tell either: a pass would say that nothing got worse by so much.
        return result(
            UNKNOWN, share, f"{metric.name} {amount}, but steps vary too much to tell; record {STEADY} or more of each"
        )
    return result(FAILED, share, f"{metric.name} {amount}, beyond noise")
