"""Obstacles in real recordings of other people: a few that must be found, and none that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_reports import report_at

from hpuprof.report.model import ReportData


def reported(path: Path) -> ReportData:
    return report_at(path).data


def found(data: ReportData) -> set[tuple[str, str]]:
    """Code and module of everything that is more than a notice."""
    return {(o.code, o.module) for o in data.obstacles if o.severity != "harmless"}


@pytest.mark.parametrize(
    "name", ["param/resnet_kineto.json.gz", "param/linear_kineto.json.gz", "resnet50_tb_samples/resnet50_num_workers_0"]
)
def test_plain_image_models_have_nothing_in_the_way(real_traces: Path, name: str):
    path = real_traces / name
    data = reported(path if path.is_file() else min(path.iterdir()))
    assert found(data) == set()
    (forward,) = (m for m in data.modules if m.module == "(forward)")
    assert forward.capturable == "yes"


def test_a_recommender_reads_values_and_has_its_own_shape_in_every_step(real_traces: Path):
    data = reported(real_traces / "hta/trace_diff/control/control.json.gz")
    have = found(data)
    # `aten::item` in it holds a cudaMemcpyAsync and a cudaStreamSynchronize; offsets differ in length in all six steps.
    assert ("HP302", "## permute_id_list_features ##") in have
    assert ("HP307", "## forward ##") in have
    assert ("HP320", "(optimizer)") in have  # an item without either
    # Stamps in whole µs move rows between neighbors; that is no control flow.
    assert not {m for code, m in have if code == "HP309"}


def test_data_parallel_resnet(real_traces: Path):
    data = reported(real_traces / "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")
    assert found(data) == set()
    row = next(o for o in data.obstacles if o.where == "backward, c10d::allreduce_")
    assert (row.module, row.per_step, row.severity) == ("DistributedDataParallel.forward", 5.0, "harmless")


def test_every_trace_keeps_the_rules(real_traces: Path):
    for path in sorted(real_traces.rglob("*.json.gz")):
        if path.name.startswith("memory_timeline"):
            continue
        data = reported(path)
        codes = {o.code for o in data.obstacles}
        for module in data.modules:
            assert set(module.blockers) | set(module.changes) <= codes, path
            assert (module.capturable == "yes") == (not module.blockers and not module.changes), path
            assert not set(module.not_seen) & set(module.not_checked), path
        for row in data.obstacles:
            assert 0 < row.steps <= row.count, (path, row)
            assert row.text
            assert row.fix
