"""A headline number and what it means. Owns the form; values come from the report and from analyses across ranks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One headline number."""

    name: Annotated[str, Meta(description="Stable name, as used in gates.")]
    value: Annotated[float | int | None, Meta(description="Value, or null when the trace does not support it.")]
    unit: Annotated[str, Meta(description="ns, fraction, ratio, count or bytes.")]
    polarity: Annotated[str, Meta(description="Which direction is better: lower, higher or none.")]
    population: Annotated[str, Meta(description="What the number was taken over.")]
    definition: Annotated[str, Meta(description="How it is computed.")]
