"""Findings worth acting on, each with a code, evidence and advice. HP2xx.

To add a finding, add its test and an entry to `STEP_RULES` or `RANK_RULES`; all lists of findings derive from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpuprof.model.tables import SuspectRow
from hpuprof.report.model import Finding
from hpuprof.report.pauses import PAUSES, shares
from hpuprof.report.rank_findings import EXPLAINS, RANK_RULES
from hpuprof.report.rule import Context, Found, Rule
from hpuprof.report.step_findings import STEP_RULES

RULES: tuple[Rule, ...] = tuple(sorted((*STEP_RULES, *RANK_RULES, PAUSES), key=lambda rule: rule.code))
BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}


WAITING = {
    "HP230": "collective_wait_fraction",
    "HP231": "collective_wait_fraction",
    "HP236": "collective_wait_fraction",
    "HP235": "pipeline_bubble_fraction",
}
"""Findings that explain exposed communication, and the waiting that they are about."""


def find(context: Context, rest: Context | None = None) -> list[Finding]:
    """Apply every rule, those on device time only where device rows are sound.

    The finding that could save most comes first; those that it explains follow it. `rest`: the recordings of all ranks
    but the straggler, where there is one.
    """
    found = {rule.code: hit for rule in RULES if (hit := _test(rule, context))}
    causes = _explained(context, rest, found)
    saves = {code: hit.saves or 0.0 for code, hit in found.items()}

    def order(code: str) -> tuple[object, ...]:
        head = causes.get(code, code)
        return -saves[head], head, code != head, -saves[code], code

    return [
        Finding(
            code=code,
            title=BY_CODE[code].title,
            evidence=found[code].evidence,
            advice=found[code].advice or BY_CODE[code].advice_for(context.family, trains=context.trains),
            share_fraction=None if found[code].saves is None else round(saves[code], 6),
            caused_by=causes.get(code, ""),
            ranks=list(found[code].ranks),
        )
        for code in sorted(found, key=order)
    ]


def _test(rule: Rule, context: Context) -> Found | None:
    return rule.test(context, rule.limit) if context.sound or not rule.needs_sound_device else None


def _explained(context: Context, rest: Context | None, found: Mapping[str, Found]) -> dict[str, str]:
    """Return the findings that would not be there without another one, and that one.

    Exposed communication is explained by waiting if less than its limit would be left without that. A straggler
    explains that ranks are uneven, if it is the uneven one, and what is found with it but not on the other ranks.
    Kernels shorter than their launch cost nothing but the idle time of slow launching. Pauses explain what
    typical steps do not show.
    """
    out: dict[str, str] = {}
    for cause in (code for code in WAITING if code in found):
        waiting = context.value(WAITING[cause])
        # Waiting that would only move to another rank stays.
        gone = waiting if (found[cause].saves or 0.0) >= EXPLAINS * waiting else 0.0
        exposed = BY_CODE["HP206"]
        if exposed.code in found and context.value("exposed_communication_fraction") - gone < exposed.limit:
            out.setdefault(exposed.code, cause)
    straggler = found.get("HP230")
    if straggler and "HP214" in found and set(found["HP214"].ranks) <= set(straggler.ranks):
        out["HP214"] = "HP230"
    if straggler and rest is not None:
        out |= {rule.code: "HP230" for rule in STEP_RULES if rule.code in found and not _test(rule, rest)}
    if PAUSES.code in found:
        for code, share in shares(context).items():
            if code in found and (found[code].saves or 0.0) - share < BY_CODE[code].limit:
                out.setdefault(code, PAUSES.code)
    if "HP201" in found and "HP201" not in out and "HP207" in found:
        out.setdefault("HP207", "HP201")
    return out


def culprits(context: Context, findings: Sequence[Finding]) -> Sequence[SuspectRow]:
    """Return what is the first thing to look at and explains why the others wait; nothing if none does."""
    cost, waiting = context.across.cost, context.value("collective_wait_fraction")
    if cost is None or not findings or findings[0].code != "HP230" or cost.median < EXPLAINS * waiting:
        return ()
    return context.across.named
