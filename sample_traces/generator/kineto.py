"""Spell rows as Kineto writes them: names, operators, flows, CUDA's runtime and device rows, the window.

All stamps are nanoseconds from the base time. What happens when is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from .rows import Args, Row

#: CUPTI's callback id of each call of the CUDA runtime.
CBID = {
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaFuncSetAttribute": 273,
    "cudaGraphLaunch": 311,
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 251,
    "cudaStreamIsCapturing": 317,
    "cudaStreamSynchronize": 131,
    "cudaStreamWaitEvent": 147,
}
_SPANS_SORT_INDEX = 536_870_912
_SPAN = "PyTorch Profiler"


def process(pid: int, ts_ns: int, name: str, label: str, sort_index: int | None = None) -> list[Row]:
    """Return the metadata of a process; without a sort index that row is left out."""
    rows = [
        Row("M", "process_name", pid, 0, ts_ns, args={"name": name}),
        Row("M", "process_labels", pid, 0, ts_ns, args={"labels": label}),
    ]
    if sort_index is not None:
        rows.append(Row("M", "process_sort_index", pid, 0, ts_ns, args={"sort_index": sort_index}))
    return rows


def track(pid: int, tid: int, ts_ns: int, name: str, sort_index: int | None = None) -> list[Row]:
    """Return the metadata of a thread, stream or engine lane; without a sort index that row is left out."""
    rows = [Row("M", "thread_name", pid, tid, ts_ns, args={"name": name})]
    if sort_index is not None:
        rows.append(Row("M", "thread_sort_index", pid, tid, ts_ns, args={"sort_index": sort_index}))
    return rows


def numbered(external: int, index: int, args: Args | None = None) -> dict[str, object]:
    """Return the arguments of a ``cpu_op`` or ``user_annotation`` between the running numbers that it gets."""
    return {"External id": external, "Record function id": 0, **(args or {}), "Ev Idx": index}


def flow(kind: str, ph: str, flow_id: int, pid: int, tid: int, ts_ns: int) -> Row:
    """Return one end of an arrow: ``s`` or ``f`` of an ``ac2g`` or ``fwdbwd`` flow."""
    return Row(ph, kind, pid, tid, ts_ns, cat=kind, flow_id=flow_id)


def runtime(
    name: str,
    thread: tuple[int, int],
    ts_ns: int,
    dur_ns: int,
    *,
    correlation: int | None = None,
    external: int | None = None,
) -> Row:
    """Return a ``cuda_runtime`` row on a thread, given as process and thread id."""
    args: dict[str, object] = {} if external is None else {"External id": external}
    if name in CBID:
        args["cbid"] = CBID[name]
    if correlation is not None:
        args["correlation"] = correlation
    return Row("X", name, *thread, ts_ns, dur_ns, "cuda_runtime", args)


def device(name: str, stream: int, ts_ns: int, dur_ns: int, args: Args, *, cat: str = "kernel") -> Row:
    """Return a row of device 0: a kernel, or a copy under its own category."""
    where = {"device": 0, "context": 1, "stream": stream}
    return Row("X", name, 0, stream, ts_ns, dur_ns, cat, where | args)


def collective(
    name: str, elements: tuple[int, int], dtype: str, world: int, *, members: bool = True
) -> dict[str, object]:
    """Return the arguments of a collective's kernel: ``elements`` that go in and come out on a rank.

    With ``members`` also the ranks of the group; torch shortens long lists.
    """
    listed = {}
    if members:
        ranks = [str(rank) for rank in range(world)]
        short = ranks if world <= 30 else [*ranks[:29], "...", ranks[-1]]
        listed = {"Process Group Ranks": f"[{', '.join(short)}]"}
    return {
        "Collective name": name,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": world,
        "dtype": dtype,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        **listed,
    }


def distributed(backend: str, rank: int, world: int, *, config: str | None = None) -> Mapping[str, object]:
    """Return ``distributedInfo``; ``config`` names the backend of the default group, which is listed then."""
    told: dict[str, object] = {"backend": backend, "rank": rank, "world_size": world}
    if config is not None:
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": config, "pg_size": world}
        told |= {"pg_count": 1, "pg_config": [{**group, "ranks": list(range(world))}]}
    return told


def window(start_ns: int, end_ns: int) -> list[Row]:
    """Return the four rows about the profiler's window that end every trace."""
    return [
        Row("X", f"{_SPAN} (0)", "Spans", _SPAN, start_ns, end_ns - start_ns, "Trace", {"Op count": 0}),
        Row("M", "process_sort_index", "Spans", 0, start_ns, args={"sort_index": _SPANS_SORT_INDEX}),
        Row("i", f"Iteration Start: {_SPAN}", "Traces", f"Trace {_SPAN}", start_ns, scope="g"),
        Row("i", "Record Window End", "", "", end_ns, scope="g"),
    ]
