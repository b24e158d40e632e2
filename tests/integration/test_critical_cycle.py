"""What sets the step time on samples and on traces of other people: the laws hold, and one rank is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from sample_reports import report_at, report_of

import hpuprof
from hpuprof.analysis.modules import backward_windows
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.predict import NOTHING_KNOWN, predict_and_keep
from hpuprof.ingest.read import read_trace
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.parts import main_windows
from hpuprof.what_if.schedule import MAIN

REAL = [
    "dlrm_8_ranks/worker0_step_12.1694128201545.pt.trace.json.gz",
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz",
    "hta/negative_queue_length_values_check/rank0.json.gz",
    "hta/timeline_analysis/sampled_rank-0.json.gz",
    "resnet50_tb_samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
]
SAMPLES = ["hpu_g1_lazy", "hpu_g1_lazy_graph_replay", "hpu_g2_eager", "hpu_g3_compile", "hpu_g3_lazy_8_ranks"]


def base_of(path):
    view = RankView.of(read_trace(str(path)))
    _, replay = predict_and_keep(view, view.modules, backward_windows(view, view.modules), NOTHING_KNOWN)
    return replay.model, Base.of(replay.model, replay.model.sample(replay.drawn))


def laws(model, base):
    step = base.period.step_ns
    np.testing.assert_allclose(base.on_cycle.parts.sum(axis=0), step, rtol=1e-7)
    assert (base.on_cycle.parts > -5_000).all()  # a row may end 2 µs after the call that waited for it
    slack = base.slack()
    critical = (base.on_cycle.parts > 1.0) & np.isfinite(slack)
    assert (slack[critical] < 1.0).all()
    if isinstance(model, LaunchModel):
        latency = base.on_cycle.parts[base.parts.latency].sum(axis=0)
        np.testing.assert_allclose(base.on_cycle.places.sum(axis=0) + latency, step, rtol=1e-7)
    else:
        call, low, high = main_windows(model)
        main = model.schedule.calls.thread == MAIN
        found = np.bincount(call, weights=high - low, minlength=len(main))
        np.testing.assert_allclose(found[main], model.schedule.calls.segment[main])


@pytest.mark.parametrize("name", REAL)
def test_parts_of_real_steps_add_up(real_traces, name):
    laws(*base_of(real_traces / name))


@pytest.mark.parametrize("sample", SAMPLES)
def test_parts_of_hpu_steps_add_up(samples, sample):
    laws(*base_of(next(p for p in sorted((samples / sample).rglob("*.json*")))))


def test_only_the_rank_that_leads_is_looked_at(samples):
    report = report_of("hpu_g3_lazy_8_ranks")
    assert {row.rank for row in report.data.critical_path} == {0}
    assert {row.rank for row in report.data.sensitivity} == {0}
    total = sum(row.fraction for row in report.data.critical_path if row.kind != "module")
    assert total == pytest.approx(1.0)
    gains = {(r.what, r.kind): r.step_100_ns - r.step_0_ns for r in report.data.sensitivity}
    drags = {(r.what, r.kind): r.drag_ns for r in report.data.critical_path if (r.what, r.kind) in gains}
    assert drags == pytest.approx({key: gains[key] for key in drags})


def test_a_rank_alone_leads(samples):
    file = sorted((samples / "hpu_g3_lazy_8_ranks").rglob("*.json*"))[3]
    assert {row.rank for row in hpuprof.analyze(file).data.critical_path} == {3}


def test_modules_have_operations_and_their_time_on_the_cycle(real_traces):
    report = report_at(real_traces / "hta/timeline_analysis/sampled_rank-0.json.gz")
    rows = {row.module: row for row in report.data.modules}
    outer, inner = rows["## forward ##"], rows["DistributedDataParallel.forward"]
    assert outer.flops_per_step == inner.flops_per_step > 0
    assert outer.critical_per_step_ns >= inner.critical_per_step_ns > 0
    assert outer.criticality == 1.0
