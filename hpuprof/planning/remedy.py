"""A remedy: what it is called, what it matches in a recording, and the edit that plays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from msgspec import Struct

from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.verdict import BLOCKED
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change


class Effort(IntEnum):
    """What a remedy asks of whoever applies it, the least first."""

    ARGUMENT = 0
    FEW_LINES = 1
    RESTRUCTURING = 2
    NUMERICS = 3  # results change
    HARDWARE = 4  # or the cluster


WEIGHT = {
    Effort.ARGUMENT: 1.0,
    Effort.FEW_LINES: 1.2,
    Effort.RESTRUCTURING: 1.5,
    Effort.NUMERICS: 1.5,
    Effort.HARDWARE: 3.0,
}
"""What a gain is divided by for the effort that it asks for: the order of the plan. Heuristic: whoever tunes a program
turns a switch before rewriting for half as much again, and changes the machine last."""
LOSS = -0.005
"""Share of the step from which a change that loses it in one of 20 samples may be a loss."""
NO_PLACE = "no_place", "the steps hold no place where it saves 0.2 %"
"""Reason and words of most remedies that a recording has no place for."""


def weight_of(effort: Effort, *, blocked: bool) -> float:
    """Return what a gain is divided by; `blocked`: obstacles go first, which only one who knows the program removes."""
    return WEIGHT[effort] * (BLOCKED if blocked else 1.0)


def worth(sure: float, median: float, weight: float) -> float:
    """Return what a gain is worth for its effort: the mean of its sure part, the 5th percentile, and its median."""
    return (max(sure, 0.0) + median) / 2 / weight


def communicates(view: RankView) -> bool:
    """Tell whether a recording holds communication of the device."""
    return bool((view.trace.device.kind == DeviceKind.COMMUNICATION).any())


class Remedy(Struct, frozen=True, kw_only=True):
    """One kind of change. The words are what users read; the registry holds them all.

    `unknown`: what is not known of its effect, and the source of the range; `costs`: what it costs to do; `proof`: how
    its price was tried: `edited` (the program was changed and run, on a virtual device), `injected` (a known delay was
    added and found), `simulated` (on generated traces only) or `bound` (not at all); `by_call`: whether it needs each
    call's device rows; `by_recipe`: whether recipes of lazy mode do as well;
    `meets`: whether ranks meet in the same collectives with a change of communication as without, so that jobs play it;
    `bounds`: what bounds a step that it is about, the device where it spares the host nothing; `mends`: codes of the
    findings that are effects of what it changes; `code`: to type on any device whose family has none of its own;
    `about`: whether a recording with device rows holds anything that it is about, where the model does not know calls;
    `absent`: reason and words where the steps hold no place for it, if others than the usual ones, and the recording
    that would tell.
    """

    name: str
    title: str
    advice: str
    code: str = ""
    costs: str
    unknown: str
    needs: str
    effort: Effort
    proof: str = "simulated"
    by_call: bool = True
    by_recipe: bool = False
    about: Callable[[RankView], bool] | None = None
    absent: Callable[[Situation], tuple[str, ...]] | None = None
    bounds: tuple[str, ...] = ()
    meets: bool = False
    mends: tuple[str, ...] = ()
    find: Callable[[Situation], Iterator[Change]]

    def code_for(self, family: str) -> str:
        """Return the code to type on a family of devices, empty where there is none."""
        return FAMILIES[family].code.get(self.name, self.code)

    def advice_for(self, family: str) -> str:
        """Return the advice on a family of devices."""
        return FAMILIES[family].advice.get(self.name, self.advice)
