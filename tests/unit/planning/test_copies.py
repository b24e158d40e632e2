"""Copies beside the computation, by hand.

A step of 100 µs: a copy of 50 launched at its start, 5 later on the lane, behind it a kernel of 40, launched at 10; the
host waits for it and sees it 2 after its end, 2 before the step's end.
"""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import copies

MEMCPY = {"cat": "gpu_memcpy", "call": "cudaMemcpyAsync"}


def loop(
    *,
    name: str = "Memcpy HtoD (Pinned -> Device)",
    stream: int = 7,
    read_first: bool = False,
    waits: bool = True,
    call: str = "cudaStreamSynchronize",
    computing: float = 40,
) -> TraceBuilder:
    """`waits`: the kernel, of `computing`, for the copy; `call`: in which the host waits."""
    out = TraceBuilder().steps(4, 100)
    for at in range(0, 400, 100):
        if read_first:
            out.kernel("Memcpy DtoH (Device -> Pinned)", at + 1, 1, launch=at, call_dur=1, stream=9, **MEMCPY)
        out.kernel(name, at + 7, 48, launch=at + 2, stream=stream, **MEMCPY)
        out.kernel("gemm", at + (56 if waits else 15), computing if waits else 81, launch=at + 10)
        out.host(call, at + 20, 78, cat="cuda_runtime", stream=7)
    return out


def test_a_copy_ahead_is_not_waited_for(tmp_path):
    bench = Bench.of(loop(), copies.REMEDY, tmp_path)
    assert bench.now == 100
    # Launched at 10, on the lane at 15, done at 55, seen at 57.
    assert bench.with_it() == 10 + 5 + 40 + 2 + 2
    # What runs beside takes a tenth of the copy's 48 longer, but no more than a tenth of its own.
    assert bench.with_it(1.0) == pytest.approx(59 + 4)
    assert bench.changes[0].where == "1 uploads in line with the computation"


def test_a_copy_on_a_stream_of_its_own_may_be_waited_for(tmp_path):
    assert Bench.of(loop(stream=9), copies.REMEDY, tmp_path).with_it() == 59


def test_who_waits_for_the_device_waits_for_the_copy_too(tmp_path):
    """The copy is launched at 2, on its lane at 7 and done at 55; the kernel at 10, 15 and 35."""
    stream, device = (
        Bench.of(loop(call=f"cuda{of}Synchronize", computing=20), copies.REMEDY, tmp_path)
        for of in ("Stream", "Device")
    )
    assert device.with_it() - stream.with_it() == 55 - 35


def test_a_copy_to_the_host_leaves_the_lane_and_waits_for_what_it_copies(tmp_path):
    bench = Bench.of(loop(name="Memcpy DtoH (Device -> Pinned)"), copies.REMEDY, tmp_path)
    assert bench.with_it() == 59


def test_nothing_is_found_where_copies_are_beside(tmp_path):
    assert not Bench.of(loop(stream=9, waits=False), copies.REMEDY, tmp_path).changes


def test_what_follows_a_read_of_its_step_may_need_it(tmp_path):
    assert not Bench.of(loop(read_first=True), copies.REMEDY, tmp_path).changes


def test_without_workers_the_main_thread_pins_what_is_copied_ahead(tmp_path):
    """The host waits for the copy in its call; at best it pins for 0.4 of the 48 µs, which workers do on a thread."""
    took = []
    for kind in ("SingleProcess", "MultiProcessing"):
        out = TraceBuilder().steps(4, 200)
        for at in range(0, 800, 200):
            out.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", at + 150, 40)
            out.kernel("Memcpy HtoD (Pageable -> Device)", at + 7, 48, launch=at + 2, call_dur=54, **MEMCPY)
            out.kernel("gemm", at + 65, 40, launch=at + 60)
            out.host("cudaStreamSynchronize", at + 70, 37, cat="cuda_runtime", stream=7)
        took.append(Bench.of(out, copies.REMEDY, tmp_path / kind).with_it())
    assert took[0] - took[1] == pytest.approx(0.4 * 48, abs=1)
