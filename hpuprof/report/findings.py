"""Findings worth acting on, each with a code, evidence and advice. HP2xx.

To add a finding, add its test and an entry to `STEP_RULES` or `RANK_RULES`; all lists of findings derive from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpuprof.model.metrics import Value
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause
from hpuprof.model.tables import RankRow
from hpuprof.ranks.rank_tables import AcrossRanks
from hpuprof.report.model import Finding
from hpuprof.report.rank_findings import RANK_RULES
from hpuprof.report.rule import Context, Rule
from hpuprof.report.step_findings import STEP_RULES

RULES: tuple[Rule, ...] = tuple(sorted((*STEP_RULES, *RANK_RULES), key=lambda rule: rule.code))
BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}


def find(
    main: Sequence[tuple[RankRow, RankPartial]],
    values: Mapping[str, Value],
    idle: Mapping[Cause, int],
    wall_ns: int,
    across: AcrossRanks,
) -> list[Finding]:
    """Apply every rule (those on device time only where device rows are sound), the largest weight first."""
    sound = bool(main) and all(part.sound for _, part in main)
    shares = {c: ns / wall_ns for c, ns in idle.items()} if wall_ns and sound else {}
    context = Context(main, values, shares, across)
    out = []
    for rule in RULES:
        if rule.needs_sound_device and not sound:
            continue
        found = rule.test(context, rule.limit)
        if found:
            out.append(
                Finding(
                    code=rule.code,
                    title=rule.title,
                    evidence=found.evidence,
                    advice=found.advice or rule.advice,
                    weight=round(found.weight, 6),
                    ranks=list(found.ranks),
                )
            )
    return sorted(out, key=lambda f: (-f.weight, f.code))
