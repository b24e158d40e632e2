"""A remedy: what it is called, what it matches in a recording, and the edit that plays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from msgspec import Struct

from hpuprof.families import FAMILIES
from hpuprof.graph_mode.verdict import BLOCKED
from hpuprof.model.arrays import Mask
from hpuprof.model.intervals import Intervals
from hpuprof.planning.situation import Situation
from hpuprof.what_if.step_model import StepModel


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
Edit = Callable[[StepModel, float], StepModel]
"""Plays a change: a model and how badly it turns out, from 0 (as good as can be) to 1, to the model with the change."""


def weight_of(effort: Effort, *, blocked: bool) -> float:
    """Return what a gain is divided by; `blocked`: obstacles go first, which only one who knows the program removes."""
    return WEIGHT[effort] * (BLOCKED if blocked else 1.0)


def worth(sure: float, median: float, weight: float) -> float:
    """Return what a gain is worth for its effort: the mean of its sure part, the 5th percentile, and its median."""
    return (max(sure, 0.0) + median) / 2 / weight


class Change(Struct, frozen=True, eq=False):
    """A remedy in one place of the program.

    `ideal`: what it is about taken away altogether, which no outcome can beat; None: the edit does that; `uncertain`:
    whether its edit depends on how it turns out; `bends`: further outcomes than 0, 0.5 and 1 to play it at, where the
    times in its edit are no straight lines between them; `last`: whether it is played after all others; `touches`:
    calls of which no other change may be part, where it excludes others; `after`: remedies that clear its way, of which
    those that are worth it come first; `requires`: remedies that its edit makes, too; `code`: to type here, where it is
    not the remedy's; `mends`: findings that go with it, where they are not its remedy's; `paces`: by how it turns out,
    the share left of the time between two batches of data-loader workers, which the host waits for; `occurs`: when it
    applies on the main thread, where that is no call; `blocked`: whether obstacles of the program must go first.
    """

    where: str
    per_step: float | None
    edit: Edit
    ideal: Edit | None = None
    uncertain: bool = False
    bends: tuple[float, ...] = ()
    last: bool = False
    touches: Mask | None = None
    after: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    code: str = ""
    mends: tuple[str, ...] = ()
    paces: Callable[[float], float] | None = None
    occurs: Intervals | None = None
    blocked: bool = False

    def shares(self, other: Change) -> bool:
        """Tell whether both touch the same calls."""
        return self.touches is not None and other.touches is not None and bool((self.touches & other.touches).any())


class Remedy(Struct, frozen=True, kw_only=True):
    """One kind of change. The words are what users read; the registry holds them all.

    `unknown`: what is not known of its effect, and the source of the range; `costs`: what it costs to do; `proof`: how
    its price was tried: `edited` (the program was changed and run, on a virtual device), `injected` (a known delay was
    added and found) or `simulated` (on generated traces only); `by_call`: whether it needs each call's device rows;
    `by_recipe`: whether recipes of lazy mode do as well;
    `bounds`: what bounds a step that it is about, the device where it spares the host nothing; `mends`: codes of the
    findings that are effects of what it changes; `code`: to type on any device whose family has none of its own;
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
    absent: Callable[[Situation], tuple[str, ...]] | None = None
    bounds: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    mends: tuple[str, ...] = ()
    find: Callable[[Situation], Iterator[Change]]

    def code_for(self, family: str) -> str:
        """Return the code to type on a family of devices, empty where there is none."""
        return FAMILIES[family].code.get(self.name, self.code)

    def advice_for(self, family: str) -> str:
        """Return the advice on a family of devices."""
        return FAMILIES[family].advice.get(self.name, self.advice)
