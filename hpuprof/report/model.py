"""The report as JSON and as an object for users. Values arrive ready; nothing here computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hpuprof.errors import UnknownNameError, UsageError
from hpuprof.faces import notebook_html
from hpuprof.model.answer import Answer, GraphLine
from hpuprof.model.metrics import METRICS, Metric
from hpuprof.model.prediction import GraphMode
from hpuprof.model.tables import ROWS, TABLES, Row, Tables

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 4
"""Raised when a field changes its meaning or goes away, not for new fields."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in one sentence, and the two numbers that decide it."""

    bound: Annotated[str, Meta(description="host, device, input, communication, copy, mixed or unknown.")]
    sentence: Annotated[str, Meta(description="The answer in words.")]
    bound_sentence: Annotated[
        str, Meta(description="The same without the first fix: what bounds the step. Empty in earlier versions.")
    ] = ""
    first: Annotated[str, Meta(description="What to change first, and what it saves; empty: nothing, or unknown.")] = ""
    deciding: Annotated[list[str], Meta(description="Names of the metrics that decide it.")]
    population: Annotated[str, Meta(description="Steps, ranks and files that the answer covers.")]
    lead: Annotated[
        Row | None,
        Meta(
            description="First recording that the answer covers, whose detail tables are shown; null without any, "
            "and in reports of earlier versions."
        ),
    ] = None
    unit: Annotated[
        Literal["step", "pass"], Meta(description="What times are of: a step, or one pass that shows no steps.")
    ] = "step"
    never_checked_on: Annotated[
        str,
        Meta(
            description="Devices of the recordings on which no estimate of hpuprof was ever compared with a measured "
            "change; empty where some were, or where nothing is estimated."
        ),
    ] = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem worth acting on, with its evidence."""

    code: Annotated[str, Meta(description="Code; see `hpuprof explain CODE`.")]
    title: Annotated[str, Meta(description="What was found.")]
    evidence: Annotated[str, Meta(description="The numbers behind it.")]
    advice: Annotated[str, Meta(description="What to do.")]
    share_fraction: Annotated[
        float | None,
        Meta(
            description="Share of the step time that it is about, a mean over ranks: no more could be saved if it went "
            "away. Findings are sorted by it. Null: unknown. `hpuprof explain CODE` says what it is."
        ),
    ] = None
    saves_fraction: Annotated[
        float | None,
        Meta(
            description="Share of the step time that its fix saves by itself, as the plan has it. Null: no fix of it "
            "has an estimate."
        ),
    ] = None
    caused_by: Annotated[
        str, Meta(description="Code of the finding that explains it and stands before it; empty if none does.")
    ] = ""
    ranks: Annotated[list[int], Meta(description="Ranks it was found on; empty for all.")]


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """One gate (`--fail-on`) and its outcome."""

    gate: Annotated[str, Meta(description="The condition that fails the run, as given.")]
    outcome: Annotated[str, Meta(description="passed, failed, or unknown (it could not be evaluated).")]
    value: Annotated[
        float | int | None, Meta(description="The value that was tested; for METRIC:N%, by how much it got worse.")
    ]
    unit: Annotated[str, Meta(description="Unit of the value.")]
    text: Annotated[str, Meta(description="Reason in words.")]


class ReportData(Tables, frozen=True, kw_only=True):
    """All results for a run: what `--json` prints and `read_report` reads."""

    schema_version: Annotated[int, Meta(description="Version of this schema.")]
    hpuprof_version: Annotated[str, Meta(description="Version that wrote the report.")]
    headline: Headline
    metrics: list[Metric]
    findings: list[Finding]
    graph_mode: GraphMode
    answer: Annotated[
        Answer, Meta(description="What every view shows first. Made anew from the tables of reports before version 4.")
    ] = Answer(bound="unknown", bound_sentence="", graphs=GraphLine(verdict="cannot say"))
    gates: Annotated[list[GateResult], Meta(description="Gates evaluated; empty when none were asked for.")] = (
        msgspec.field(default_factory=list)
    )


class Metrics(dict[str, Metric]):
    """Metrics by name. Raises UnknownNameError, which is also a KeyError and suggests the nearest names."""

    def __missing__(self, name: str) -> Metric:
        raise UnknownNameError("metric", name, self)


class Report:
    """A frozen report. Tables are pandas frames, for example `report.steps`.

    Columns are those of `docs/reference/columns.md`. `report.data` is the plain form; `report.metrics` maps names to
    `Metric` and raises UnknownNameError for others.
    """

    __slots__ = ("_frames", "data")
    data: ReportData
    _frames: dict[str, pd.DataFrame]

    def __init__(self, data: ReportData) -> None:
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "_frames", {})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a report is frozen; cannot set {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Report, (self.data,)

    def __repr__(self) -> str:
        return f"<Report of {len(self.data.files)} files: {self.data.headline.sentence}>"

    def _repr_html_(self) -> str:
        return notebook_html(self, "report_html")

    @property
    def headline(self) -> Headline:
        """The answer in one sentence."""
        return self.data.headline

    @property
    def answer(self) -> Answer:
        """What bounds the step, the fixes with what they save, and where they end: what every view shows first."""
        return self.data.answer

    @property
    def metrics(self) -> dict[str, Metric]:
        """Headline numbers by name; unknown where a report of an earlier version lacks them."""
        own = {m.name: m for m in self.data.metrics}
        return Metrics(own | {spec.name: spec.metric(None, "") for spec in METRICS if spec.name not in own})

    @property
    def findings(self) -> list[Finding]:
        """Problems worth acting on, the one that could save most first; what it explains follows it."""
        return self.data.findings

    @property
    def graph_mode(self) -> GraphMode:
        """Would graph mode help: the verdict, the predicted gain, the evidence."""
        return self.data.graph_mode

    def table(self, name: str) -> pd.DataFrame:
        """Return one table as a new frame. Raises UsageError for an unknown name."""
        if name not in TABLES:
            raise UsageError(f"no table {name!r}", hint=f"one of {', '.join(TABLES)}")
        import pandas as pd

        if name not in self._frames:
            rows = getattr(self.data, name)
            columns = list(ROWS[name].__struct_fields__)
            frame = pd.DataFrame([[getattr(r, c) for c in columns] for r in rows], columns=columns)
            for column in columns:
                # Integers with unknowns stay integers: floats would round ns.
                values = frame[column].dropna()
                if len(values) and all(type(v) is int for v in values):
                    frame[column] = frame[column].astype("Int64" if len(values) < len(frame) else "int64")
            self._frames[name] = frame
        return self._copy(name)

    def _copy(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self._frames[name].copy()
        return frame

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *TABLES]
