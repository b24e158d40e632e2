"""Keep what really happened in the simulation, and compute the expected numbers from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .intervals import Interval, clip, length, subtract

#: Which kind of work an engine class does.
KIND_OF_ENGINE = {"mme": "compute", "tpc": "compute", "dma": "copy", "nic": "communication"}


@dataclass(frozen=True, slots=True)
class Activity:
    """One lane of one engine being active; rows that are only markers never become an activity."""

    engine: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Schedule:
    """The steps, the device activities and the graph compilations of one rank, in absolute nanoseconds."""

    steps: list[Interval] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    compiles: list[Interval] = field(default_factory=list)
    launches: list[Interval] = field(default_factory=list)  # when the program called or handed it over, when that work had ended

    def of_kind(self, *kinds: str) -> list[Interval]:
        """Return the activities of some kinds of work (``compute``, ``communication``, ``copy``)."""
        return [(a.start_ns, a.end_ns) for a in self.activities if KIND_OF_ENGINE[a.engine] in kinds]

    def of_engine(self, engine: str) -> list[Interval]:
        """Return the activities of one engine class (``mme``, ``tpc``, ``dma``, ``nic``)."""
        return [(a.start_ns, a.end_ns) for a in self.activities if a.engine == engine]

    def until_done(self) -> list[int]:
        """Return how long each step takes until the device work that was launched in it is done, too.

        It begins where the step before it was done, if that is later than its own begin.
        """
        lengths, done = [], 0
        for begin, end in self.steps:
            start = max(begin, done)
            done = max([start, end, *(ended for called, ended in self.launches if begin <= called < end)])
            lengths.append(done - start)
        return lengths

    def expected(self) -> dict[str, object]:
        """Return the headline numbers of the manifest: one integer (ns) a step for each list."""
        compute, communication, copy = (
            self.of_kind("compute"),
            self.of_kind("communication"),
            self.of_kind("copy"),
        )
        series: dict[str, list[Interval]] = {
            "device_busy_ns": compute + communication + copy,
            "compute_busy_ns": compute,
            "communication_busy_ns": communication,
            "copy_busy_ns": copy,
            "exposed_communication_ns": subtract(communication, compute),
            **{f"{engine}_ns": self.of_engine(engine) for engine in KIND_OF_ENGINE},
            "compile_ns": self.compiles,
        }
        numbers: dict[str, object] = {"step_wall_ns": [end - start for start, end in self.steps]}
        numbers["step_until_done_ns"] = self.until_done()
        for name, intervals in series.items():
            numbers[name] = [length(clip(intervals, step)) for step in self.steps]
        return numbers
