"""Files that are made when they are needed: each shape is harmless small and once cost more than its size when it grew.

`size` is chosen so that what grows with the square would pass `cpu_s` many times over, or `memory_mib`, and what grows
with the size stays far below both: below a third of the one, and three quarters of the other.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One shape: how it is made and what each command may use for it."""

    name: str
    make: Callable[[int], bytes]
    size: int
    cpu_s: int
    memory_mib: int = 500
    commands: tuple[str, ...] = ("analyze",)
    exits: tuple[int, ...] = (0,)
    file_name: str = "rank0.pt.trace.json"


CASES: list[Case] = []


def grows(
    size: int,
    *,
    cpu_s: int,
    memory_mib: int = 300,
    commands: tuple[str, ...] = ("analyze",),
    exits: tuple[int, ...] = (0,),
    file_name: str = "rank0.pt.trace.json",
) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Add a shape to the corpus."""

    def add(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
        CASES.append(Case(make.__name__, make, size, cpu_s, memory_mib, commands, exits, file_name))
        return make

    return add


READERS = ("analyze", "inspect", "merge", "check", "convert", "export")
_ROW = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":5,"dur":3}'


@grows(1_200_000, cpu_s=5, commands=READERS)
def lists_of_objects_in_the_last_row(size: int) -> bytes:
    """Valid JSON; every `}]` in the arguments might end the array."""
    lists = ",".join(f'"k{i}":[{{"x":1}}]' for i in range(size // 18))
    return f'{{"traceEvents":[{_ROW},{_ROW[:-1]},"args":{{{lists}}}}}]}}'.encode()


@grows(150_000, cpu_s=2, commands=READERS)
def rows_within_rows_that_never_end(size: int) -> bytes:
    """The file ends inside arguments of arguments, each of which looks like a row."""
    inner = '{"args":[{"x":1}],"name":['
    return (f'{{"traceEvents":[{_ROW},' + inner * (size // len(inner))).encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_key_of_spaces_that_the_end_cuts(size: int) -> bytes:
    return f'[{_ROW},{{"{" " * size}x":5'.encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_header_of_spaces(size: int) -> bytes:
    return f'{{{" " * size}x "traceEvents":[{_ROW}]}}'.encode()


@grows(750_000, cpu_s=4, commands=READERS)
def many_members_behind_the_events(size: int) -> bytes:
    """The last of them is broken, so that they are read one by one."""
    members = ",".join(f'"k{i}":{i}' for i in range(size // 14))
    return f'{{"traceEvents":[{_ROW}],{members},"z":nope}}'.encode()


@grows(1_000_000, cpu_s=5, commands=READERS)
def a_broken_row_of_many_names(size: int) -> bytes:
    names = '"name":"a,' * (size // 10)
    return f'[{_ROW},{{"ph":"X","ts":1,"dur":1,{names}}},{_ROW}]'.encode()


@grows(400_000, cpu_s=5, commands=READERS)
def a_broken_row_that_ends_in_spaces(size: int) -> bytes:
    return f'[{_ROW},{{"ph":"X","ts":1,"dur":1,"name":"a"b"}}{" " * size}x,{_ROW}]'.encode()


@grows(2_000_000, cpu_s=4, commands=READERS)
def one_long_name(size: int) -> bytes:
    name = "[LightningDataModule]" * (size // 21)
    return f"[{_ROW},{_ROW.replace('cpu_op', 'user_annotation').replace('aten::mm', name)}]".encode()


@grows(100_000, cpu_s=5, commands=READERS)
def a_collective_named_by_digits(size: int) -> bytes:
    return f"[{_ROW},{_ROW.replace('aten::mm', 'nccl:send ' + '1' * size)}]".encode()


@grows(4_000_000, cpu_s=5, commands=("merge", "check", "export"))
def ends_that_fit_none_of_the_open_begins(size: int) -> bytes:
    each = '{"ph":"%s","cat":"cpu_op","name":"%s%d","pid":1,"tid":1,"ts":%d}'
    count = size // 130
    marks = [each % ("B", "b", i, i) for i in range(count)] + [each % ("E", "e", i, count + i) for i in range(count)]
    return f"[{_ROW},{','.join(marks)}]".encode()


@grows(3_000_000, cpu_s=3, commands=READERS)
def a_category_for_every_row(size: int) -> bytes:
    rows = (_ROW.replace('"cpu_op"', f'"c{i}"') for i in range(size // 75))
    return f"[{_ROW},{','.join(rows)}]".encode()


_CSV = b"Name,Engine,Event type,Timestamp[usec]\n"
_PAIR = b"n,[HD0] TPC 0,BEGIN,1\nn,[HD0] TPC 0,END,5\n"


@grows(160 << 20, cpu_s=8, commands=READERS, file_name="rank0.csv")
def a_csv_with_one_long_line(size: int) -> bytes:
    return _CSV + _PAIR + b"x" * size + b"\n" + _PAIR


_OF_BOMBS = ("analyze", "merge", "convert")
"""All read a file the same way; each of the three writes something else."""


def _bomb(head: bytes, size: int, tail: bytes) -> bytes:
    """Compress `size` letters between two texts without ever holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"A" * (1 << 20)
    parts = [packer.compress(head), *(packer.compress(block) for _ in range(size >> 20)), packer.compress(tail)]
    return b"".join(parts) + packer.flush()


@grows(1 << 28, cpu_s=12, memory_mib=270, commands=_OF_BOMBS, file_name="rank0.pt.trace.json.gz")
def a_bomb_behind_the_events(size: int) -> bytes:
    return _bomb(f'{{"traceEvents":[{_ROW}],"a":"'.encode(), size, b'"}')


@grows(
    1 << 27,
    cpu_s=10,
    memory_mib=400,
    commands=_OF_BOMBS,
    exits=(3,),
    file_name="rank0.pt.trace.json.gz",
)
def a_bomb_before_the_events(size: int) -> bytes:
    return _bomb(b'{"a":"', size, f'","traceEvents":[{_ROW}]}}'.encode())


@grows(1 << 26, cpu_s=10, memory_mib=200, commands=_OF_BOMBS, file_name="rank0.pt.trace.json.gz")
def a_bomb_in_a_row(size: int) -> bytes:
    return _bomb(f'[{_ROW},{_ROW[:-1]},"a":"'.encode(), size, f'"}},{_ROW}]'.encode())


# ------------------------------------------------------------------------------------------- shapes of what rows tell

EVERY = ("analyze", "inspect", "merge", "check", "convert", "export")


def row(name: str, start: float, dur: float, cat: str = "cpu_op", thread: object = 1, **args: object) -> str:
    """One row of a host thread; times in µs."""
    return json.dumps({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": dur, "args": args})  # fmt: skip


def kernel(name: str, start: float, dur: float, stream: int = 7, correlation: int = 0) -> str:
    """One row of a device's stream."""
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return json.dumps({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur, "args": args})  # fmt: skip


def launch(number: int, start: float, thread: object = 1) -> str:
    """The call that launches the kernel of the same number."""
    return row("cudaLaunchKernel", start, 0.5, "cuda_runtime", thread, correlation=number)


def trace(rows: Iterable[str]) -> bytes:
    """A file of these rows."""
    return ('{"traceEvents":[\n' + ",\n".join(rows) + "\n]}\n").encode()


def steps(number: int, length: float) -> list[str]:
    """Steps back to back from 0."""
    return [row(f"ProfilerStep#{i}", i * length, length, "user_annotation") for i in range(number)]


@grows(2_000, cpu_s=6, commands=EVERY)
def nested_modules(size: int) -> bytes:
    """A module in a module in a module, each with an operator of its own."""
    rows = steps(4, 10 * size)
    for begin in (0, 10 * size):
        rows += [
            row(f"nn.Module: Layer_{i}", begin + 1 + i, 8 * size - 2 * i, "python_function") for i in range(size // 2)
        ]
        rows += [row("aten::mm", begin + 1.5 + i, 0.25) for i in range(size // 2)]
    return trace(rows)


@grows(2_000, cpu_s=6)
def nested_modules_on_a_device(size: int) -> bytes:
    """The same as ranges, and each operator launches a kernel."""
    rows = steps(4, 4 * size)
    for begin in range(0, 16 * size, 4 * size):
        rows += [
            row(f"[pl][module]Layer: net.{i}", begin + 1 + i, 3 * size - 2 * i, "user_annotation")
            for i in range(size // 4)
        ]
        for i in range(size // 4):
            at = begin + 1 + i
            number = begin + i + 1
            rows += [row("aten::mm", at + 0.2, 0.7, Sequence_number=number), launch(number, at + 0.3)]
            rows.append(kernel("gemm", at + size, 0.8, correlation=number))
    return trace(rows)


@grows(4_000, cpu_s=6)
def one_module_inside_itself(size: int) -> bytes:
    """A module that calls itself, with its backward, whose nodes nest as its calls do."""
    rows = steps(3, 20 * size)
    for begin in (0, 20 * size, 40 * size):
        rows += [
            row(f"nn.Module: Layer_{i % 3}", begin + 1 + i, 6 * size - 2 * i, "python_function")
            for i in range(size // 6)
        ]
        for i in range(size // 6):
            args = {"Sequence number": begin + i, "Fwd thread id": 0}
            rows.append(row("aten::mm", begin + 1.5 + i, 0.25, "cpu_op", 1, **args))
            args = {"Sequence number": begin + i, "Fwd thread id": 1}
            rows.append(row("MmBackward0", begin + 10 * size - i, 0.5, "cpu_op", 2, **args))
    return trace(rows)


@grows(20_000, cpu_s=6, commands=EVERY)
def operators_at_one_stamp(size: int) -> bytes:
    """Operators that all begin at once, each shorter than the one before."""
    return trace([*steps(4, 2 * size), *(row(f"op{i % 50}", 1, 1 + size - i) for i in range(size))])


@grows(20_000, cpu_s=6, commands=EVERY)
def operators_that_overlap(size: int) -> bytes:
    """Operators that outlive the one before, all open for as long as the whole."""
    return trace([*steps(4, 2 * size), *(row(f"op{i % 50}", i, size) for i in range(size))])


@grows(20_000, cpu_s=6, commands=EVERY)
def deep_begins_and_ends(size: int) -> bytes:
    """Rows that begin one after another before the first one ends."""
    rows = [json.dumps({"ph": "B", "cat": "cpu_op", "name": f"op{i % 50}", "pid": 1, "tid": 1, "ts": i}) for i in range(size // 2)]  # fmt: skip
    rows += [json.dumps({"ph": "E", "pid": 1, "tid": 1, "ts": size + i}) for i in range(size // 2)]
    return trace([*steps(4, size // 2), *rows])


@grows(20_000, cpu_s=6)
def python_frames_nested_deep(size: int) -> bytes:
    """Python's frames, one inside the other, with operators inside."""
    rows = [row(f"train.py({i}): f{i}", 1 + i, 4 * size - 2 * i, "python_function") for i in range(size // 2)]
    rows += [row("aten::mm", 1.5 + size // 2 + i, 0.5) for i in range(size // 2)]
    return trace([*steps(4, 2 * size), *rows])


@grows(10_000, cpu_s=8, commands=EVERY)
def many_streams(size: int) -> bytes:
    """As many streams as kernels."""
    rows = steps(4, 2 * size)
    for i in range(size):
        rows += [row("aten::mm", i + 0.1, 0.8), launch(i + 1, i + 0.2), kernel("gemm", i + 0.7, 5, 1 + i, i + 1)]
    return trace(rows)


@grows(10_000, cpu_s=8, commands=EVERY)
def many_lanes(size: int) -> bytes:
    """As many lanes of an engine, each with its name and one kernel on it."""
    rows = [json.dumps({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}})]
    for i in range(size):
        rows.append(json.dumps({"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": f"[HD0] TPC {i}"}}))  # fmt: skip
        rows.append(json.dumps({"ph": "X", "cat": "Kernel", "name": f"k{i % 9}", "pid": 0, "tid": i, "ts": i, "dur": 9}))  # fmt: skip
    return trace([*steps(4, size // 4), *rows])


@grows(10_000, cpu_s=8, commands=EVERY)
def many_threads(size: int) -> bytes:
    """As many threads as operators, each with its name and its launch."""
    rows = steps(4, size // 4)
    for i in range(size):
        rows.append(json.dumps({"ph": "M", "name": "thread_name", "pid": 1, "tid": i + 9, "args": {"name": f"t{i}"}}))
        rows += [row("aten::mm", i + 0.1, 0.8, thread=i + 9), launch(i + 1, i + 0.2, i + 9)]
        rows.append(kernel("gemm", i + 0.7, 1, correlation=i + 1))
    return trace(rows)


@grows(10_000, cpu_s=8, commands=EVERY)
def many_processes(size: int) -> bytes:
    """A process for each operator, with a name and a place among the others."""
    rows = steps(4, size // 4)
    for i in range(size):
        named = {"process_name": {"name": f"p{i}"}, "process_sort_index": {"sort_index": i}}
        rows += [json.dumps({"ph": "M", "name": n, "pid": i + 9, "tid": 0, "args": a}) for n, a in named.items()]
        rows.append(json.dumps({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": i + 9, "tid": 1, "ts": i, "dur": 1}))  # fmt: skip
    return trace(rows)


@grows(2_000, cpu_s=8, commands=("analyze", "merge", "export"))
def many_process_groups(size: int) -> bytes:
    """A process group of two ranks for each collective."""
    rows = steps(4, size)
    for i in range(size):
        told = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": str(i), "Process Group Ranks": f"[{i}, {i + 1}]"}  # fmt: skip
        rows.append(row("record_param_comms", 4 * i / 2, 1, **{**told, "In msg nelems": 9, "dtype": "Float"}))
    return trace(rows)


@grows(1_000_000, cpu_s=30, memory_mib=1_000, commands=("analyze", "merge", "export"))
def process_groups_of_many_ranks(size: int) -> bytes:
    """As many groups as ranks in each; `size` is how many ranks they name in all."""
    count = math.isqrt(size)
    rows = steps(4, count)
    for i in range(count):
        told = {"Collective name": "allreduce", "Group size": count, "Process Group Name": str(i), "Process Group Ranks": str(list(range(i, i + count)))}  # fmt: skip
        rows.append(row("record_param_comms", 4 * i, 1, **{**told, "In msg nelems": 9, "dtype": "Float"}))
    return trace(rows)


@grows(8_000, cpu_s=8, commands=EVERY)
def many_steps(size: int) -> bytes:
    """As many steps as operators and kernels."""
    rows = steps(size, 10)
    for i in range(size):
        at = 10 * i
        rows += [row("aten::mm", at + 1, 5), launch(i + 1, at + 2), kernel("gemm", at + 3, 6, correlation=i + 1)]
    return trace(rows)


@grows(5_000, cpu_s=4, commands=EVERY)
def steps_that_overlap(size: int) -> bytes:
    """Steps that begin before the last one ended, and operators of as many names."""
    rows = [row(f"ProfilerStep#{i}", 10 * i, 25, "user_annotation") for i in range(size)]
    return trace([*rows, *(row(f"op{i}", 10 * i + 1, 5) for i in range(size))])


@grows(8_000, cpu_s=8, commands=EVERY)
def many_names(size: int) -> bytes:
    """Every operator, annotation and kernel with a name of its own."""
    rows = steps(8, 10 * size // 8)
    for i in range(size):
        at = 10 * i
        rows += [row(f"my range {i}", at, 9, "user_annotation"), row(f"op{i}", at + 1, 5)]
        rows += [launch(i + 1, at + 2), kernel(f"gemm{i}", at + 3, 6, correlation=i + 1)]
    return trace(rows)


@grows(8_000, cpu_s=8)
def many_modules(size: int) -> bytes:
    """As many modules beside each other as operators."""
    rows = steps(4, 10 * size // 4)
    for i in range(size):
        at = 10 * i
        rows += [row(f"nn.Module: Layer_{i}", at, 9, "python_function"), row("aten::mm", at + 1, 5)]
    return trace(rows)


@grows(8_000, cpu_s=8)
def many_waits(size: int) -> bytes:
    """The host waits for the device behind every launch."""
    rows = steps(8, 10 * size // 8)
    for i in range(size):
        at = 10 * i
        rows += [row("aten::item", at, 9), row("aten::_local_scalar_dense", at + 0.1, 8.5), launch(i + 1, at + 0.2)]
        rows += [kernel("copy", at + 3, 2, correlation=i + 1), row("cudaStreamSynchronize", at + 2, 6, "cuda_runtime")]
    return trace(rows)


@grows(8_000, cpu_s=8)
def many_shapes(size: int) -> bytes:
    """One module, each call with another shape."""
    rows = steps(4, 10 * size // 4)
    for i in range(size):
        at = 10 * i
        shown = {"Input Dims": [[i + 1, 4]], "Input type": ["float"], "Input Strides": [[4, 1]]}
        rows += [row("nn.Module: Layer_0", at, 9, "python_function"), row("aten::mm", at + 1, 5, **shown)]
    return trace(rows)


@grows(8_000, cpu_s=8, commands=EVERY)
def many_flows_and_counters(size: int) -> bytes:
    """A flow, a counter, an instant and a piece of memory for each operator."""
    rows = steps(4, 10 * size // 4)
    for i in range(size):
        at, place = 10 * i, {"pid": 1, "tid": 1}
        rows += [row("aten::mm", at + 1, 5), row("aten::mm_out", at + 2, 3, thread=2)]
        rows.append(json.dumps({"ph": "s", "id": i, "cat": "fwdbwd", "name": "fwdbwd", **place, "ts": at + 1}))
        rows.append(json.dumps({"ph": "f", "bp": "e", "id": i, "cat": "fwdbwd", "name": "fwdbwd", "pid": 1, "tid": 2, "ts": at + 2}))  # fmt: skip
        rows.append(json.dumps({"ph": "C", "name": f"count {i}", **place, "ts": at, "args": {"value": i}}))
        told = {"Total Allocated": 4 * i, "Bytes": 4, "Device Type": 1, "Device Id": 0, "Addr": i}
        rows.append(json.dumps({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", **place, "ts": at + 2, "args": told}))  # fmt: skip
    return trace(rows)


@grows(4_000, cpu_s=8)
def many_forward_threads(size: int) -> bytes:
    """As many threads that ran forward as nodes of autograd that go back to them."""
    rows = steps(4, 5 * size)
    for i in range(size):
        args = {"Sequence number": i, "Fwd thread id": 0}
        rows.append(row("aten::mm", i + 1, 0.5, "cpu_op", 100 + i, **args))
        args = {"Sequence number": i, "Fwd thread id": 1 + i}
        rows.append(row("MmBackward0", 2 * size + i, 0.5, "cpu_op", 2, **args))
    return trace(rows)


@grows(8_000, cpu_s=8, memory_mib=900)
def many_collectives(size: int) -> bytes:
    """One group, as many collectives, each with a kernel."""
    rows = steps(8, 10 * size // 8)
    for i in range(size):
        at = 10 * i
        told = {"Collective name": "allreduce", "Group size": 4, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]"}  # fmt: skip
        rows += [row("record_param_comms", at + 1, 3, **{**told, "In msg nelems": i + 1, "dtype": "Float"}), launch(i + 1, at + 2)]  # fmt: skip
        rows.append(kernel("ncclDevKernel_AllReduce", at + 3, 6, correlation=i + 1))
    return trace(rows)


@grows(4_000, cpu_s=8, commands=EVERY)
def many_engines(size: int) -> bytes:
    """A kind of engine for each kernel."""
    rows = [json.dumps({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}})]
    for i in range(size):
        rows.append(json.dumps({"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": f"[HD0] E{i}X 0"}}))  # fmt: skip
        rows.append(json.dumps({"ph": "X", "cat": "Kernel", "name": f"k{i}", "pid": 0, "tid": i, "ts": i, "dur": 9}))
    return trace([*steps(4, size // 4), *rows])


@grows(5_000, cpu_s=4)
def many_steps_of_a_lane(size: int) -> bytes:
    """As many steps as kernels on an engine's lane, slow at first, each with a mark of the lazy mode."""
    rows = [json.dumps({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}})]
    rows.append(json.dumps({"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "[HD0] TPC 0"}}))
    at = 0
    for i in range(size):
        long = 100 if i < size // 3 else 10
        rows.append(row(f"ProfilerStep#{i}", at, long, "user_annotation"))
        rows += [row("aten::mm", at + 1, 2), row("StepMarker", at + 4, 1), row(f"my wait {i}", at + 6, 2)]
        rows.append(json.dumps({"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 1, "ts": at + 2, "dur": 5}))
        at += long
    return trace(rows)


@grows(4_000, cpu_s=8)
def many_names_of_waits(size: int) -> bytes:
    """As many operators of names of their own that read back, compile, communicate, allocate and draw numbers, and as many hooks."""
    rows = steps(8, 20 * size // 8)
    for i in range(size):
        at = 20 * i
        rows += [row("nn.Module: Net_0", at, 19, "python_function"), row(f"torch/nn/modules/module.py({i}): _call_impl", at + 0.1, 18, "python_function")]  # fmt: skip
        rows += [row(f"mine.py({i}): hook{i}", at + 0.2, 17, "python_function"), row(f"op{i}", at + 1, 15)]
        rows += [row("cudaMemcpyAsync", at + 2, 6, "cuda_runtime", correlation=i + 1), row("cudaStreamSynchronize", at + 8.1, 1, "cuda_runtime")]  # fmt: skip
        rows.append(json.dumps({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7, "ts": at + 3, "dur": 2, "args": {"device": 0, "stream": 7, "correlation": i + 1}}))  # fmt: skip
        rows += [row(f"Torch-Compiled Region: {i}/0", at + 9.2, 1, "user_annotation"), row(f"nccl:all_reduce {i}", at + 10.3, 1, "user_annotation")]  # fmt: skip
        rows.append(row("cudaMalloc", at + 11.4, 1, "cuda_runtime"))
    return trace(rows)


@grows(8_000, cpu_s=8)
def many_optimizer_steps(size: int) -> bytes:
    """As many steps with forward, backward and optimizer as fit, and a learning rate that changes."""
    rows = []
    for i in range(size // 4):
        at = 100 * i
        rows.append(row(f"ProfilerStep#{i}", at, 100, "user_annotation"))
        args = {"Sequence number": i, "Fwd thread id": 0, "Input Dims": [[4]], "Input type": ["Scalar"], "Concrete Inputs": [f"{i}.5"]}  # fmt: skip
        rows.append(row("aten::mul", at + 1, 20, "cpu_op", 1, **args))
        rows.append(row("MulBackward0", at + 30, 10, "cpu_op", 2, **{"Sequence number": i, "Fwd thread id": 1}))
        if i % 3:
            rows.append(row("Optimizer.step#SGD.step", at + 50, 40, "user_annotation"))
        rows += [row("aten::add_", at + 55, 20, "cpu_op", 1, **args), launch(i + 1, at + 60), kernel("k", at + 65, 5, correlation=i + 1)]  # fmt: skip
    return trace(rows)


@grows(8_000, cpu_s=8)
def many_graph_launches(size: int) -> bytes:
    """As many graphs launched as kernels in them."""
    rows = steps(8, 10 * size // 8)
    for i in range(size):
        at = 10 * i
        rows += [row("cudaGraphLaunch", at + 1, 1, "cuda_runtime", correlation=i + 1), kernel(f"k{i % 7}", at + 3, 2, correlation=i + 1), kernel("z", at + 6, 2, correlation=i + 1)]  # fmt: skip
    return trace(rows)


@grows(8_000, cpu_s=8)
def nested_collectives(size: int) -> bytes:
    """Rows that issue collectives, one inside the other, each launching a kernel."""
    rows = steps(4, 4 * size)
    for i in range(size // 2):
        told = {"Collective name": "allreduce", "Process Group Name": str(i % 5), "In msg nelems": i + 1, "dtype": "Float"}  # fmt: skip
        rows += [row("record_param_comms", i + 1, 8 * size - 2 * i, **told), launch(i + 1, i + 1.2)]
        rows.append(kernel("ncclDevKernel_AllReduce", size + i, 0.7, correlation=i + 1))
    return trace(rows)


@grows(8_000, cpu_s=8)
def waits_on_many_streams(size: int) -> bytes:
    """The host waits behind every launch, each on a stream of its own."""
    rows = steps(8, 10 * size // 8)
    for i in range(size):
        at = 10 * i
        rows += [launch(i + 1, at + 0.2), kernel("k", at + 3, 2, 1 + i % (size // 8), i + 1)]
        rows.append(row("cudaStreamSynchronize", at + 2, 6, "cuda_runtime"))
    return trace(rows)


@grows(2_000, cpu_s=4, commands=("analyze", "merge"))
def streams_of_each_step(size: int) -> bytes:
    """Each of four steps launches a kernel on every stream, from the main thread."""
    rows = steps(4, 20 * size)
    for i in range(4 * size):
        rows += [launch(i + 1, 20 * i + 2), kernel("gemm", 20 * i + 8, 9, 1 + i % size, i + 1)]
    return trace(rows)


@grows(1_000, cpu_s=4, commands=("analyze", "merge"))
def threads_of_each_step(size: int) -> bytes:
    """In each of four steps every thread launches four kernels on a stream of its own."""
    rows = steps(4, 80 * size)
    for i in range(16 * size):
        thread = i // 4 % size
        rows += [row("aten::mm", 20 * i, 15, thread=9 + thread), launch(i + 1, 20 * i + 2, 9 + thread)]
        rows.append(kernel("gemm", 20 * i + 8, 9, 1 + thread, i + 1))
    return trace(rows)


@grows(1_000, cpu_s=4, commands=("analyze", "merge"))
def streams_that_wait_for_each_other(size: int) -> bytes:
    """In each of four steps every stream waits for the one before it, and the host for all of them in the end."""
    rows, number = steps(4, 20 * size + 100), iter(range(1, 16 * size))
    for i in range(4 * size):
        at, stream = 20 * i + 100 * (i // size), i % size
        if stream:
            record, wait = next(number), next(number)
            on = {"stream": 1 + stream, "correlation": wait, "wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record}  # fmt: skip
            rows.append(row("cudaEventRecord", at, 0.5, "cuda_runtime", correlation=record))
            rows.append(row("cudaStreamWaitEvent", at + 1, 0.5, "cuda_runtime", correlation=wait))
            rows.append(json.dumps({"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 1 + stream, "ts": at + 1, "dur": 1, "args": {"cuda_sync_kind": "Stream Wait Event", "device": 0, **on}}))  # fmt: skip
        launched = next(number)
        rows += [launch(launched, at + 2), kernel("gemm", at + 8, 9, 1 + stream, launched)]
        if stream == size - 1:
            rows.append(row("cudaDeviceSynchronize", at + 10, 20, "cuda_runtime", correlation=next(number)))
    return trace(rows)


@grows(30_000, cpu_s=6, commands=("convert",))
def engine_overlaps(size: int) -> bytes:
    """Kernels of one engine that all overlap: each needs a track of its own in the tab."""
    head = '{"ph":"M","name":"process_name","pid":0,"tid":0,"ts":0,"args":{"name":"/device:HPU:0"}}'
    lane = '{"ph":"M","name":"thread_name","pid":0,"tid":7000,"ts":0,"args":{"name":"[HD0] TPC 0"}}'
    row = '{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7000,"ts":%d,"dur":1000000,"args":{"recipeId":7}}'
    return ('{"traceEvents":[' + ",\n".join([head, lane, *(row % (i, i) for i in range(size))]) + "]}").encode()


@grows(8_000, cpu_s=8)
def many_backward_threads(size: int) -> bytes:
    """Each node of autograd on a thread of its own, while the device idles."""
    rows = steps(4, 4 * size)
    for i in range(size):
        rows.append(row("MmBackward0", 16 * i + 1, 12, "cpu_op", 100 + i))
        rows += [launch(i + 1, 16 * i + 2, 100 + i), kernel("k", 16 * i + 6, 4, correlation=i + 1)]
    return trace(rows)
