"""The remedies, one module each. To add one: write its module and name it in `REMEDIES`."""

from __future__ import annotations

from hpuprof.model.once import once
from hpuprof.planning.remedies import (
    attention,
    buckets,
    compression,
    copies,
    cpu_operators,
    data_loading,
    faster_products,
    fills,
    flushes,
    fused_optimizer,
    gradient_overlap,
    graph_breaks,
    graph_kernels,
    graphs,
    layouts,
    lower_precision,
    no_sync,
    parameter_gathers,
    pointwise_fusion,
    recomputation,
    waits,
)
from hpuprof.planning.remedy import Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change

REMEDIES: tuple[Remedy, ...] = (
    data_loading.REMEDY,
    *waits.REMEDIES,
    cpu_operators.REMEDY,
    flushes.REMEDY,
    copies.REMEDY,
    no_sync.REMEDY,
    *parameter_gathers.REMEDIES,
    gradient_overlap.REMEDY,
    buckets.REMEDY,
    *compression.REMEDIES,
    *lower_precision.REMEDIES,
    faster_products.REMEDY,
    attention.REMEDY,
    layouts.REMEDY,
    pointwise_fusion.REMEDY,
    graph_breaks.REMEDY,
    graph_kernels.REMEDY,
    recomputation.REMEDY,
    fills.REMEDY,
    *fused_optimizer.REMEDIES,
    graphs.REMEDY,
)
BY_NAME = {remedy.name: remedy for remedy in REMEDIES}


@once
def changes_in(situation: Situation) -> list[tuple[Remedy, Change]]:
    """Return the changes that the recorded steps hold a place for, in the order of the remedies."""
    return [(remedy, change) for remedy in REMEDIES for change in remedy.find(situation)]
