"""What each host thread is for."""

from __future__ import annotations

import json
from pathlib import Path

from builder import AUTOGRAD, MAIN, TraceBuilder

from hpuprof.analysis.threads import track_roles
from hpuprof.ingest.read import read_trace
from hpuprof.model.schema import Role

OTHER = (100, 102)


def roles(builder: TraceBuilder, folder: Path) -> dict[str, str]:
    """Role by thread number; tracks without host rows are left out."""
    trace = builder.trace(folder)
    return {t.tid: Role(int(r)).name.lower() for t, r in zip(trace.tracks, track_roles(trace), strict=True) if r}


def test_main_has_the_step_markers_even_with_fewer_operators(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).host("aten::add", 1, 2)
    for i in range(5):
        b.host("aten::mul", 10 * i, 5, thread=OTHER)
    assert roles(b, tmp_path) == {"100": "main", "102": "other"}


def test_without_markers_main_has_the_most_operators(tmp_path: Path):
    b = TraceBuilder().host("aten::add", 0, 2, thread=OTHER).host("aten::add", 0, 2).host("aten::mul", 5, 2)
    assert roles(b, tmp_path) == {"100": "main", "102": "other"}


def test_a_thread_of_nothing_but_backward_is_not_main_for_its_many_operators(tmp_path: Path):
    b = TraceBuilder().host("aten::linear", 0, 5).host("aten::relu", 5, 5)
    for at in (20, 30, 40):
        b.host("autograd::engine::evaluate_function: AddmmBackward0", at, 9, thread=OTHER)
        b.host("aten::mm", at + 1, 2, thread=OTHER).host("aten::add_", at + 4, 2, thread=OTHER)
    assert roles(b, tmp_path) == {"100": "main", "102": "autograd"}


def test_autograd_by_name_of_the_thread(tmp_path: Path):
    b = (
        TraceBuilder()
        .step(0, 0, 100)
        .host("aten::add", 0, 2)
        .thread("pt_autograd_0", AUTOGRAD)
        .host("aten::mm", 5, 2, thread=AUTOGRAD)
    )
    assert roles(b, tmp_path) == {"100": "main", "101": "autograd"}


def test_autograd_by_what_it_runs(tmp_path: Path):
    for name in (
        "autograd::engine::evaluate_function: AddmmBackward0",
        "AddmmBackward0",
        "torch::autograd::AccumulateGrad",
    ):
        b = TraceBuilder().step(0, 0, 100).host("aten::add", 0, 2).host(name, 5, 9, thread=AUTOGRAD)
        assert roles(b, tmp_path) == {"100": "main", "101": "autograd"}, name


def test_backward_on_the_main_thread_leaves_it_main(tmp_path: Path):
    assert roles(
        TraceBuilder().step(0, 0, 100).host("autograd::engine::evaluate_function: MulBackward0", 5, 2), tmp_path
    ) == {"100": "main"}


def test_launch_threads_enqueue_and_run_no_operators(tmp_path: Path):
    b = (
        TraceBuilder()
        .step(0, 0, 100)
        .host("aten::add", 0, 2)
        .host("LaunchSyncTensorsGraph", 5, 5, cat="privateuse1_runtime", thread=OTHER)
    )
    assert roles(b, tmp_path) == {"100": "main", "102": "launch"}


def test_data_loader_threads(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).thread("pt_data_worker", OTHER).host("aten::stack", 5, 2, thread=OTHER)
    assert roles(b, tmp_path) == {"100": "main", "102": "data_loader"}


def test_bridge_tracks_share_the_role_of_their_thread(tmp_path: Path):
    # G1 draws the bridge's rows under pid + 20000 with the thread's own number.
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).host("aten::add", 0, 2).lane("gemm", 5, 10)
    b.event(ph="M", name="process_name", pid=20_100, tid=0, ts=0, args={"name": "Bridge Logs"})
    b.event(ph="B", cat="Runtime", name="SyncTensorsGraphInternal", pid=20_100, tid=100, ts=10)
    b.event(ph="E", cat="Runtime", name="SyncTensorsGraphInternal", pid=20_100, tid=100, ts=15)
    trace = b.trace(tmp_path)
    found = {t.pid: (t.os_thread, int(r)) for t, r in zip(trace.tracks, track_roles(trace), strict=True) if r}
    assert found == {str(MAIN[0]): ("100/100", Role.MAIN), "20100": ("100/100", Role.MAIN)}


def test_synapse_tracks_have_no_thread(tmp_path: Path):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).host("aten::add", 0, 2).lane("gemm", 5, 10)
    b.event(ph="X", cat="Runtime", name="compileGraph", pid=22101, tid=4294966298, ts=10, dur=5)
    assert roles(b, tmp_path) == {"100": "main", "4294966298": "other"}


def test_a_synapse_track_belongs_to_the_thread_whose_calls_hold_its_own(tmp_path: Path):
    bridge, worker = (20_100, 100), (20_100, 101)
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).host("aten::add", 0, 2).lane("gemm", 5, 10)
    b.event(ph="M", name="process_name", pid=20_100, tid=0, ts=0, args={"name": "Bridge Logs"})
    for k in range(4):
        b.host("copy_hpu_lazy_H2D", 10 + 20 * k, 4, cat="Runtime", thread=bridge)
        b.host("memcpyAsync", 11 + 20 * k, 2, cat="hpu_op", thread=(22101, 1))
        b.host("LaunchSyncTensorsGraph", 12 + 20 * k, 6, cat="Runtime", thread=worker)
        b.host("enqueueWithExternalEventsExt (accel0)", 14 + 20 * k, 2, cat="hpu_op", thread=(22101, 2))
    b.host("hcclSynchronize", 90, 8, cat="hpu_op", thread=(22101, 1))  # in no call of the bridge
    found = roles(b, tmp_path)
    assert (found["1"], found["2"]) == ("main", "launch")


def test_a_synapse_logger_file_names_no_threads_and_yet_has_them(tmp_path: Path):
    rows = [
        ("B", "add_hpu_lazy", 10),
        ("E", "add_hpu_lazy", 20),
        ("B", "copy_hpu_lazy_D2H", 30),
        ("E", "copy_hpu_lazy_D2H", 60),
    ]
    path = tmp_path / "synapse_log.json"
    path.write_text(
        ",\n".join(json.dumps({"ph": p, "cat": "foo", "name": n, "pid": 7, "tid": 7, "ts": t}) for p, n, t in rows)
        + ",\n"
    )
    trace = read_trace(path)
    assert (trace.form, track_roles(trace).tolist()) == ("bare", [Role.MAIN])
