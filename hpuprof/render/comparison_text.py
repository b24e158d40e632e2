"""A comparison as text, Markdown and JSON. Formats and lays out; verdicts and sentences arrive ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpuprof.comparison.result import COMPARISON_VERSION, Change, Comparison, Part, Side
from hpuprof.model.metrics import STEP_COLUMNS
from hpuprof.render.column_words import CAUSE, named
from hpuprof.render.formats import clean, duration, measured, percent
from hpuprof.render.json import Form, document
from hpuprof.render.markdown import from_template
from hpuprof.render.sections import TOP, gates
from hpuprof.render.table_view import Section
from hpuprof.render.text import Paper

_WHAT = {
    "gap": "idle",
    "step_group": "steps",
    "gap_operator": "idle at",
    "engine": "engine",
    "operator": "operator",
    "kernel": "kernel",
    "collective": "collective",
    "rank": "rank",
}
_MEASURE = {"host_self_ns": "host", "device_self_ns": "device", "own_ns": "own time"}
_DETAIL = tuple(_WHAT)


def to_text(comparison: Comparison, *, width: int = 80, color: bool = False, top: int | None = TOP) -> str:
    """Return the comparison as text of at most `width` columns (at least 72), tables cut to `top` rows (None: all)."""
    paper = Paper(width=width, color=color)
    style = {"worse": "bold red", "better": "bold green"}.get(comparison.verdict, "bold")
    for i, line in enumerate(comparison.leads):
        paper.line(line, style="" if i else style)
    if comparison.cautions:
        paper.heading("Caveats")
        for caution in comparison.cautions:
            paper.line(caution, 2, "yellow")
    for section in compare_sections(comparison, top=top):
        paper.section(section)
    return paper.text()


def to_markdown(comparison: Comparison, *, top: int | None = TOP) -> str:
    """Return the comparison as GitHub-flavoured Markdown, for pull requests and CI summaries."""
    return from_template(
        "compare.md.j2", c=comparison, leads=comparison.leads, sections=compare_sections(comparison, top=top)
    )


def dumps(comparison: Comparison) -> str:
    """Return the comparison as one JSON document, one line per change."""
    return document(comparison)


COMPARISONS = Form(
    Comparison,
    "comparison form",
    "comparison",
    COMPARISON_VERSION,
    "give a file written by `hpuprof compare -o file.json`",
)


def compare_sections(c: Comparison, *, top: int | None = TOP) -> list[Section]:
    """Return the sections in reading order, regressions first; those without rows are left out."""
    lead = [x for x in c.changes if (x.stage, x.action) == (c.stage, c.action)]
    found = [
        gates(c.gates),
        _fixes(c),
        _items("worse", "Got worse, per step", [x for x in lead if x.verdict == "worse"], top),
        _items("changed", "Changed, per step", [x for x in lead if x.verdict == "changed"], top),
        _items("better", "Got better, per step", [x for x in lead if x.verdict == "better"], top),
        _parts(c),
        _replaced(c, top),
        _steps(lead),
        _metrics(lead),
        _places(c),
        _findings(c),
        _runs(c),
    ]
    return [section for section in found if section.rows]


def _signed(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    mark = "−" if value < 0 else "+" if value > 0 else ""
    if unit == "fraction":
        return f"{mark}{abs(100 * value):.1f} pts"
    return f"{mark}{measured(abs(value), unit)}"


def _relative(change: Change) -> str:
    if change.only == "A":
        return "gone"
    if change.relative is None:
        return "new" if change.a == 0 and change.delta else ""
    if change.relative >= 10:
        return f"{change.relative + 1:,.0f} ×"
    return f"{'−' if change.relative < 0 else '+' if change.relative > 0 else ''}{percent(abs(change.relative))}"


def _noise(low: float | None, high: float | None, unit: str) -> str:
    return "unknown" if low is None or high is None else f"±{_signed((high - low) / 2, unit).lstrip('+')}"


def _name(change: Change) -> str:
    if change.group == "gap":
        return CAUSE.get(change.name, change.name)
    if change.group == "gap_operator" and change.match:
        cause = change.match.get("cause", "")
        rest = " ".join(w for w in (change.match.get("host_row"), change.match.get("within")) if w)
        return f"{rest.replace('[pl][profile]', '') or 'nothing traced'} ({CAUSE.get(cause, cause)})"
    if change.group == "kernel" and change.match:
        return " ".join(w for w in (named(change.match["name"]), change.match["engine"], change.match["dtype"]) if w)
    return named(change.name) if change.group in ("kernel", "operator") else change.name


def _items(name: str, title: str, changes: Iterable[Change], top: int | None) -> Section:
    """Show idle causes, operators, kernels and the like; the parts of the step have a table of their own."""
    chosen = [x for x in changes if x.group in _DETAIL]
    chosen.sort(key=lambda x: (x.unit != "ns", -abs(x.delta or 0.0), _DETAIL.index(x.group), x.name))
    rows = tuple(
        (
            f"{_WHAT[x.group]}{' ' + _MEASURE[x.measure] if x.measure in _MEASURE else ''}",
            clean(_name(x)),
            _signed(x.delta, x.unit),
            _relative(x),
            clean(x.remark),
        )
        for x in chosen[:top]
    )
    left = len(chosen) - len(rows)
    note = f"{left} more in --json." if left else ""
    return Section(title, ("what", "name", "change", "", "note"), rows, "llrrl", note, name)


def _parts(c: Comparison) -> Section:
    """Show what the change of the step time consists of: parts that sum to it, and the largest inside each."""
    mine = [p for p in c.parts if (p.stage, p.action) == (c.stage, c.action)]
    total = sum(p.delta for p in mine if p.level == 1)
    scale = max((abs(p.delta) for p in mine if p.level == 1), default=0.0)
    rows: list[tuple[str, ...]] = []
    for part in sorted((p for p in mine if p.level == 1), key=lambda p: (-abs(p.delta), p.text)):
        if abs(part.delta) < max(0.01 * scale, 0.5) and len(rows) >= 1:
            continue
        rows.append(_part(part, clean(part.text)))
        inside = [p for p in mine if p.level == 2 and (p.kind, p.parent) == (part.kind, part.name)]
        large = [p for p in inside if abs(p.delta) >= max(0.05 * scale, 0.5)]
        if large != inside[: len(large)] or len(inside) > 1 or any(p.remainder for p in inside):
            rows += [_part(p, f"  {clean(named(p.label or p.text))}") for p in large[:3]]
    change = _signed(total, "ns") if total else "0 ns"
    note = f"Parts sum to the change in mean step time, {change}; small parts are omitted."
    header = ("part of the step", "A", "B", "change", "noise")
    return Section("Where the step time changed", header, tuple(rows), "lrrrr", note, "parts")


def _part(part: Part, text: str) -> tuple[str, ...]:
    return (
        text,
        duration(part.a) if part.a >= 0 else f"−{duration(-part.a)}",
        duration(part.b) if part.b >= 0 else f"−{duration(-part.b)}",
        _signed(part.delta, "ns"),
        _noise(part.low, part.high, "ns"),
    )


def _fixes(c: Comparison) -> Section:
    """Show the signs of the fixes that were found; a sign that is no number stands for itself."""
    rows = tuple(
        (
            fix.fix,
            clean(sign.what),
            measured(sign.a, sign.unit) if sign.unit else "",
            measured(sign.b, sign.unit) if sign.unit else "",
        )
        for fix in c.applied
        for sign in fix.signs
    )
    return Section("Fixes found", ("fix", "sign", "A", "B"), rows, "llrr", "Per step.", "fixes")


def _replaced(c: Comparison, top: int | None) -> Section:
    """Show the kernels that others replaced."""
    rows = tuple(
        (
            clean(f"{r.kind} at {r.place}" if r.place else r.kind),
            clean(named(r.a)),
            clean(named(r.b)),
            duration(r.a_ns),
            duration(r.b_ns),
        )
        for r in c.replaced[:top]
    )
    header = ("what", "kernel in A", "kernel in B", "A", "B")
    note = "Times per step. Kernels are matched by the operator that launches them, by what they compute and how often."
    return Section("Kernels replaced", header, rows, "lllrr", note, "replaced")


def _both(name: str, title: str, changes: Iterable[tuple[str, Change]], note: str = "") -> Section:
    """Show changes under their labels, with the values of both sides."""
    header = ("", "A", "B", "change", "noise", "verdict")
    return Section(title, header, tuple(_row(label, x) for label, x in changes), "lrrrrl", note, name)


def _row(label: str, x: Change) -> tuple[str, ...]:
    return (
        label,
        measured(x.a, x.unit),
        measured(x.b, x.unit),
        _signed(x.delta, x.unit),
        _noise(x.low, x.high, x.unit),
        x.verdict,
    )


def _steps(lead: Sequence[Change]) -> Section:
    by_name = {x.name: x for x in lead if x.group == "step"}
    known = [(of.label, by_name[of.column]) for of in STEP_COLUMNS if of.label and of.column in by_name]
    return _both("steps", "Step, means", [(label, x) for label, x in known if x.a or x.b])


def _metrics(lead: Sequence[Change]) -> Section:
    shown = [(x.name, x) for x in lead if x.group == "metric" and x.delta is not None and _shows(x)]
    note = "Shares are relative to the step: when the step grows, unchanged parts have smaller shares."
    return _both("metrics", "Metrics", shown, note)


def _shows(change: Change) -> bool:
    """Whether either value prints as more than zero."""
    least = 0.0005 if change.unit == "fraction" else 0.0
    return max(abs(change.a or 0), abs(change.b or 0)) > least


def _places(c: Comparison) -> Section:
    others = [
        (" ".join(w for w in (x.stage, x.action) if w) or "unnamed steps", x)
        for x in c.changes
        if (x.group, x.name) == ("step", "wall_ns") and (x.stage, x.action) != (c.stage, c.action)
    ]
    return _both("places", "Other recordings, mean step time", others)


def _findings(c: Comparison) -> Section:
    codes_a, codes_b = {f.code for f in c.findings_a}, {f.code for f in c.findings_b}
    rows = [("new in B", f.code, f.title, clean(f.evidence)) for f in c.findings_b if f.code not in codes_a]
    rows += [("gone in B", f.code, f.title, clean(f.evidence)) for f in c.findings_a if f.code not in codes_b]
    return Section("Findings that differ", ("", "code", "finding", "evidence"), tuple(rows), "llll", name="findings")


def _runs(c: Comparison) -> Section:
    def row(label: str, side: Side) -> tuple[str, ...]:
        device = " ".join(w for w in (side.family, side.device) if w)
        return label, clean(side.name), clean(device), side.mode, str(side.ranks), str(side.steps)

    rows = (row("A", c.a), row("B", c.b))
    counts = f"at least {percent(c.threshold)} and its {100 * c.level:.0f} % interval (noise) excludes zero"
    note = f"A change counts if it is {counts}."
    return Section("Compared", ("", "run", "device", "mode", "ranks", "steps"), rows, "llllrr", note, "runs")
