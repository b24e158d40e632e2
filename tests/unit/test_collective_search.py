"""Calls of one trace: what each dialect tells of a collective, when it could have started, who waited for it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from builder import AUTOGRAD, TraceBuilder
from hypothesis import given
from hypothesis import strategies as st
from rank_traces import ALL_REDUCE, blocking, comm, header

from hpuprof.ingest.dialect_collectives import (
    collective_op,
    element_bytes,
    element_type,
    is_collective,
    runs_on_host,
)
from hpuprof.model.collective_calls import CallGroup, CallKind, Calls, pack_ints, unpack, unpack_ints


def calls(builder: TraceBuilder, folder) -> Calls:
    return unpack(builder.reduce(folder).calls)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "broadcast"),
        ("_allgather_base", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:send 0->1", "send"),
        ("gloo:all_reduce", "all_reduce"),
        ("mpi:broadcast", "broadcast"),
        ("c10d::allreduce_", "all_reduce"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("c10d::recv_", "recv"),
        ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter"),
        ("hcclAllReduce", "all_reduce"),
        ("hcclReduceScatter", "reduce_scatter"),
        ("hcclSend", "send"),
        ("MPI_Allgather", "all_gather"),
        ("MPI_Bcast", "broadcast"),
        ("c10d::barrier", "barrier"),
        ("record_param_comms", None),
        ("hcclSynchronize", None),
        ("wait", None),
        ("nccl:coalesced", None),
    ],
)
def test_operations(name, op):
    assert collective_op(name) == op


@pytest.mark.parametrize("name", ["aten::mm", "gemm", "ncd", "cudaLaunchKernel", "Optimizer.step#SGD.step"])
def test_names_of_no_collective(name):
    assert not is_collective(name)


def test_what_runs_on_the_host():
    assert [runs_on_host(n) for n in ("gloo:all_reduce", "mpi:reduce", "nccl:all_reduce", "hcclAllReduce")] == [
        True,
        True,
        False,
        False,
    ]


def test_element_types():
    assert [element_type(t) for t in ("c10::BFloat16", "BFloat16", "Float", "float", "unsigned char", "Long")] == [
        "bfloat16",
        "bfloat16",
        "float",
        "float",
        "byte",
        "long",
    ]
    assert [element_bytes(t) for t in ("bfloat16", "float", "byte", "nothing")] == [2, 4, 1, 0]


def test_kernel_arguments_tell_everything(tmp_path):
    trace = TraceBuilder().steps(1, 1000)
    more = {"Process Group Description": "dp", "Process Group Ranks": "[1, 3]", "Group size": 2, "Seq": 41}
    trace.device("ncclDevKernel_Generic", 10, 5, **comm("_allgather_base", 100, **{**more, "Out msg nelems": 200}))
    found = calls(trace, tmp_path)
    assert found.groups == [CallGroup(name="0", text="dp", ranks=(1, 3), size=2)]
    assert found.kinds == [CallKind(group=0, op="all_gather", bytes=800, dtype="float")]  # its output
    assert found.sequence.tolist() == [41]


def test_a_shortened_list_of_ranks_is_completed_from_start_and_stride(tmp_path):
    more = {"Process Group Ranks": "[0, 8, ..., 56]", "Group size": 8, "Global rank start": 0, "Global rank stride": 8}
    found = calls(TraceBuilder().steps(1, 1000).device(ALL_REDUCE, 10, 5, **comm(**more)), tmp_path)
    assert found.groups[0].ranks == (0, 8, 16, 24, 32, 40, 48, 56)


def test_a_shortened_list_without_start_comes_from_the_header(tmp_path):
    trace = TraceBuilder(**header(0, 40)).steps(1, 1000)
    trace.device(ALL_REDUCE, 10, 5, **comm(**{"Process Group Ranks": "[0, 1, ..., 39]", "Group size": 40}))
    assert calls(trace, tmp_path).groups[0].ranks == tuple(range(40))


def test_the_operator_around_the_launch_tells_what_an_older_kernel_does_not(tmp_path):
    trace = TraceBuilder().steps(1, 1000)
    trace.host("c10d::allreduce_", 10, 30, thread=AUTOGRAD)
    trace.host("record_param_comms", 12, 25, thread=AUTOGRAD, **comm(elements=8, **{"Process Group Ranks": "[0, 1]"}))
    trace.kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 50, 20, launch=20, thread=AUTOGRAD)
    found = calls(trace, tmp_path)
    assert found.kinds == [CallKind(group=0, op="all_reduce", bytes=32, dtype="float")]
    assert found.groups[0].ranks == (0, 1)


def test_the_annotation_around_the_launch_names_an_all_to_all_that_runs_as_send_and_receive(tmp_path):
    trace = TraceBuilder().steps(1, 1000)
    trace.host("c10d::alltoall_base_", 10, 30)
    trace.event(
        ph="X",
        cat="user_annotation",
        name="nccl:all_to_all",
        pid=100,
        tid=100,
        ts=12,
        dur=20,
        args={"Input Dims": [[3, 4]], "Input type": ["c10::Half"]},
    )
    trace.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 50, 20, launch=20)
    assert calls(trace, tmp_path).kinds == [CallKind(group=0, op="all_to_all", bytes=24, dtype="half")]


def test_point_to_point_peers(tmp_path):
    trace = TraceBuilder().steps(1, 1000)
    trace.device("ncclDevKernel_SendRecv", 10, 5, **comm("send", 4, **{"Dst Rank": 3}))
    trace.device("ncclDevKernel_SendRecv", 30, 5, **comm("recv", 4, **{"Src Rank": 1}))
    kinds = calls(trace, tmp_path).kinds
    assert [(k.op, k.source, k.target, k.bytes) for k in kinds] == [("send", -1, 3, 16), ("recv", 1, -1, 16)]


def test_a_collective_on_many_network_lanes_is_one_call(tmp_path):
    trace = TraceBuilder(**header(0, 2)).steps(1, 1000)
    for port in range(3):
        trace.lane("hcclAllReduce", 50 + port, 100, engine=f"NIC {port}", tid=14000 + port, cat="hpu_op")
    trace.lane("hcclAllReduce", 400, 50, engine="NIC 0", tid=14000, cat="hpu_op")
    for start in (10, 200):
        trace.host("c10d::allreduce_", start, 20, **{"Input Dims": [[8]], "Input type": ["c10::BFloat16"]})
    found = calls(trace, tmp_path)
    assert (found.start.tolist(), found.end.tolist()) == ([50_000, 400_000], [152_000, 450_000])
    assert found.kinds == [CallKind(group=0, op="all_reduce", bytes=16, dtype="bfloat16")]
    assert found.timed


def test_without_network_rows_calls_have_no_times(tmp_path):
    trace = TraceBuilder(**header(0, 2)).steps(1, 1000)
    trace.lane("gemm", 10, 100, engine="MME 0", tid=6000, cat="kernel")
    trace.host("hcclAllReduce", 20, 5, cat="hpu_op", thread=(22101, 9))
    found = calls(trace, tmp_path)
    assert not found.timed
    assert [k.op for k in found.kinds] == ["all_reduce"]


def test_gloo_runs_on_the_host(tmp_path):
    trace = TraceBuilder(**header(0, 2)).steps(2, 1000)
    for i in range(2):
        trace.host("aten::mm", i * 1000 + 10, 200)
        trace.host("c10d::allreduce_", i * 1000 + 210, 10)
        args = {"Input Dims": [[100]], "Input type": ["float"]}
        trace.event(
            ph="X",
            cat="user_annotation",
            name="gloo:all_reduce",
            pid=100,
            tid=105,
            ts=i * 1000 + 230,
            dur=50,
            args=args,
        )
        trace.host("aten::add_", i * 1000 + 300, 10)
    found = calls(trace, tmp_path)
    assert found.kinds == [CallKind(group=0, op="all_reduce", bytes=400, dtype="float")]
    assert found.step.tolist() == [0, 1]
    assert (found.end - found.start).tolist() == [50_000, 50_000]
    assert found.activity_before["compute"].tolist() == [200_000, 210_000]


def test_a_call_is_ready_when_launched_and_when_earlier_compute_is_done(tmp_path):
    trace = TraceBuilder().steps(1, 2000)
    trace.kernel("gemm", 20, 100, launch=10)
    trace.kernel(ALL_REDUCE, 123, 300, launch=15, stream=20, **comm())  # waits for gemm: ready at 120
    trace.kernel("gemm", 130, 50, launch=18)
    trace.kernel(ALL_REDUCE, 423, 50, launch=30, stream=20, **comm())  # queued behind the first: ready at 180
    trace.kernel(ALL_REDUCE, 702, 50, launch=700, stream=20, **comm())  # ready when its launch returned
    found = calls(trace, tmp_path)
    assert found.ready.tolist() == [120_000, 180_000, 702_000]
    # gemm covers 130 to 180 of the first one.
    assert found.exposed.tolist() == [250_000, 50_000, 50_000]
    assert found.tail.tolist() == [243_000, 293_000, 50_000]


def test_compute_at_the_end_hides_a_call(tmp_path):
    trace = TraceBuilder().steps(1, 1000)
    trace.kernel(ALL_REDUCE, 100, 100, launch=10, stream=20, **comm())
    trace.kernel("gemm", 150, 100, launch=20)
    found = calls(trace, tmp_path)
    assert (found.exposed.tolist(), found.tail.tolist()) == ([50_000], [0])


def test_activities_before_a_call_exclude_each_other_and_add_up(tmp_path):
    trace = TraceBuilder().step(0, 0, 1000)
    trace.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100)
    trace.host("<built-in function collect>", 100, 50, cat="python_function")
    trace.kernel("gemm", 180, 200, launch=160)
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 380, 20, launch=170, call="cudaMemcpyAsync", cat="gpu_memcpy")
    trace.kernel(ALL_REDUCE, 410, 50, launch=175, stream=20, **comm())
    did = {name: column.tolist() for name, column in calls(trace, tmp_path).activity_before.items()}
    assert did == {
        "compute": [200_000],
        "input": [100_000],
        "copy": [20_000],
        "compile": [0],
        "gc": [50_000],
        "host": [40_000],
    }


def test_calls_survive_packing(tmp_path):
    trace = blocking(0, [300, 310, 320, 330], [400, 400, 400, 400])
    part = trace.reduce(tmp_path)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=type(part))
    first, second = unpack(part.calls), unpack(again.calls)
    assert second.start.tolist() == [300_000, 1_310_000, 2_320_000, 3_330_000]
    for name in ("kind", "lane", "step", "sequence", "start", "end", "ready", "exposed", "tail"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=50))
def test_packed_integers_come_back(values):
    column = np.array(values, dtype=np.int64)
    assert unpack_ints(pack_ints(column)).tolist() == values


def test_calls_of_a_long_trace_stay_small(tmp_path):
    """100 steps of 50 collectives, irregular to the ns: 5000 calls in less than 100 kB."""
    rng = np.random.default_rng(3)
    trace = TraceBuilder()
    now = 0.0
    for step in range(100):
        begin = now
        for i in range(50):
            work, length = (float(x) for x in rng.integers(100_000, 900_000, 2) / 1000)
            trace.kernel("gemm", now + 10, work, launch=now + 1)
            trace.kernel(
                ALL_REDUCE, now + work + 12, length, launch=now + 4, stream=20, **comm(elements=1000 * (i % 7 + 1))
            )
            now += work + length + 20
        trace.step(step, begin, now - begin)
    part = trace.reduce(tmp_path)
    assert len(unpack(part.calls)) == 5000
    assert len(msgspec.msgpack.encode(part.calls)) < 100_000
