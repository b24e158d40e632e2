"""A change of the program in one place: the edit that plays it, and how it may turn out."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hpuprof.model.arrays import Floats, Mask
from hpuprof.model.intervals import Intervals
from hpuprof.what_if.step_model import StepModel

Edit = Callable[[StepModel, float], StepModel]
"""Plays a change: a model and how badly it turns out, from 0 (as good as can be) to 1, to the model with the change."""


class Alone(Struct, frozen=True, eq=False):
    """Samples of the share of the step that a change gains by itself, with all that is not known of it; at most."""

    gained: Floats
    most: float


class Change(Struct, frozen=True, eq=False):
    """A remedy in one place of the program.

    `ideal`: what it is about taken away altogether, which no outcome can beat; None: the edit does that; `uncertain`:
    whether its edit depends on how it turns out; `bends`: further outcomes than 0, 0.5 and 1 to play it at, where the
    times in its edit are no straight lines between them; `last`: whether it is played after all others; `touches`:
    calls of which no other change may be part, where it excludes others; `after`: remedies that clear its way, of which
    those that are worth it come first; `requires`: remedies that its edit makes, too; `code`: to type here, where it is
    not the remedy's; `mends`: findings that go with it, where they are not its remedy's; `paces`: by how it turns out,
    the share left of the time between two batches of data-loader workers, which the host waits for; `occurs`: when it
    applies on the main thread, where that is no call; `blocked`: whether obstacles of the program must go first;
    `alone`: what it is known to gain if nothing else changes, where that is more than its edit's play.
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
    alone: Alone | None = None

    def shares(self, other: Change) -> bool:
        """Tell whether both touch the same calls."""
        return self.touches is not None and other.touches is not None and bool((self.touches & other.touches).any())
