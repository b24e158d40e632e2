"""The virtual device of the graph-mode benchmark: its own laws, and cases from the recorder to the report.

Everything runs in processes of its own: there torch takes the device for CUDA. Times have lower bounds that hold on any machine;
upper bounds are wide and hold for the best of several tries.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
from as_recorded import as_recorded
from recorder.forked import Programs

import hpuprof

ROOT = Path(__file__).resolve().parents[2]
# Numbers of two small cases of seed 0 with little device work: one stream and a backward thread; two streams and none.
HOST_BOUND = {7: "mlp", 9: "branches"}

needs.module("torch", "torch")
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)


RECORD = "import sys; from benchmarks.graph_mode.virtual.record import main; sys.exit(main(sys.argv[1:]))"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """`run(code, *arguments)` runs a program in a process of its own, which has torch and the device; returns what it printed."""
    from benchmarks.graph_mode.virtual.build import CannotBuildError, build

    try:
        build()
    except CannotBuildError as error:
        if "failed:" in str(error):
            raise  # the compiler's own words: the source is wrong
        needs.absent("compiler", str(error))
    with Programs("torch") as programs:
        yield lambda code, *words: programs(tmp_path_factory.mktemp("run"), code, *map(str, words)).stdout


LAWS = """
import json, time
import torch
from benchmarks.graph_mode.virtual.build import build
from benchmarks.graph_mode.virtual.device import Constants, VirtualDevice

torch.set_num_threads(1)
device, x = VirtualDevice(build()), torch.ones(4)
SIDE, KERNEL, COUNT = 20, 100_000, 12
base = dict(scale=0, shortest=KERNEL, jitter=0, latency_jitter=0, launch=1000, latency=5000, gap=2000, graph_gap=1000)

def best(work, **constants):
    times = []
    for _ in range(20):
        time.sleep(0.005)  # whoever slept is let run for a while, on a busy machine too
        device.configure(Constants(**{**base, **constants}), 1)
        with device.running():
            began = time.perf_counter_ns()
            work()
            returned = time.perf_counter_ns() - began
            device.synchronize()
            times.append((time.perf_counter_ns() - began, returned))
    return min(times)

def launches():
    for _ in range(COUNT):
        x.add(1)
        x.view(2, 2)

def two_streams():
    for stream in (7, SIDE):
        device.set_stream(stream)
        launches()
    device.set_stream(7)

def joined():
    launches()
    device.record_event(1)
    device.set_stream(SIDE)
    device.wait_event(1)
    launches()
    device.set_stream(7)

def captured():
    device.configure(Constants(**base), 1)
    with device.running():
        device.capture(1)
        device.part(1)
        launches()
        device.capture(0)
    return device.graph([1])

def read():
    launches()
    device.next_read()
    x[0].item()

graph = captured()
told = {
    "queued": best(launches),
    "full queue": best(launches, queue=4),
    "two streams": best(two_streams),
    "joined": best(joined),
    "replay": best(lambda: device.replay(graph), graph_scale=0.5, replay=50_000),
    "read": best(read),
    "host only": best(lambda: (device.host_begin(), launches(), device.host_end())),
    "kernels": device.graph_kernels(graph),
}
print(json.dumps(told))
"""


def test_the_device_keeps_its_laws(run: Run) -> None:
    told = json.loads(run(LAWS))
    kernel, count, gap = 100_000, 12, 2000
    one_stream = count * kernel + (count - 1) * gap
    assert told["kernels"] == count, "views launch nothing"
    total, returned = told["queued"]
    assert one_stream <= total < 1.5 * one_stream
    assert returned < 0.5 * total, "launching does not wait"
    total, returned = told["full queue"]
    assert one_stream <= total
    assert returned >= (count - 4) * kernel, "the host waits until at most four launches are outstanding"
    assert one_stream <= told["two streams"][0] < 1.7 * one_stream, "streams run at the same time"
    assert told["joined"][0] >= 2 * one_stream - gap, "a stream that waits for an event starts after it"
    replayed = count * kernel * 0.5 + (count - 1) * 1000
    total, returned = told["replay"]
    assert replayed + 50_000 <= total < 1.7 * replayed
    assert returned >= 50_000
    assert told["read"][1] >= one_stream, "reading a value waits for the device"
    assert told["host only"][0] < 0.5 * one_stream


@pytest.fixture(scope="module")
def cases(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[dict[str, Any], Path]]:
    """Two recorded cases by number: their documents and the paths of their traces."""
    folder = tmp_path_factory.mktemp("virtual")
    for number in HOST_BOUND:
        run(RECORD, *f"--seed 0 --first {number} --cases 1 --rounds 3 --attempts 2 -o".split(), folder)
    found = {}
    for number in HOST_BOUND:
        document = json.loads((folder / f"virtual-0-{number:03d}.json").read_text(encoding="utf-8"))
        found[number] = (document, folder / document["trace"])
    assert len(list(folder.iterdir())) == 2 * len(HOST_BOUND), "nothing but cases is left"
    return found


@pytest.mark.parametrize("number", HOST_BOUND)
def test_a_recorded_case_reads_as_a_run_on_cuda(cases: dict[int, tuple[dict[str, Any], Path]], number: int) -> None:
    case, trace = cases[number]
    report = hpuprof.analyze(trace, jobs=1)
    (file,) = report.data.files
    assert (file.family, file.mode, file.step_source) == ("cuda", "eager", "profiler_step")
    assert case["model"] == HOST_BOUND[number]
    used = [s for s in report.data.steps if s.used]
    assert len(report.data.steps) == case["hidden"]["drawn"]["active"]
    assert len(used) >= 3, "steps that were disturbed are left out"
    assert report.metrics["launches_per_step"].value >= case["hidden"]["kernels"]
    rows = json.loads(gzip.decompress(trace.read_bytes()))
    told = rows["hpuprof"]["unprofiled"]
    assert (told["step_ns"], told["spread_ns"]) == tuple(case["unprofiled"].values())


def test_a_case_on_an_hpu(run: Run, tmp_path: Path) -> None:
    run(RECORD, *["--family", "hpu", "--seed", "0", "--first", "0", "--cases", "1", "--rounds", "3", "-o"], tmp_path)
    case = json.loads((tmp_path / "virtual-hpu-0-000.json").read_text(encoding="utf-8"))
    report = hpuprof.analyze(tmp_path / case["trace"], jobs=1)
    (file,) = report.data.files
    assert (file.family, file.generation, file.mode) == ("hpu", "G3", "eager")
    assert file.unprofiled_step_ns == case["unprofiled"]["step_ns"]
    assert {e.engine for e in report.data.engines} == {"MME", "TPC", "DMA"}
    busy = [s.device_busy_ns for s in report.data.steps if s.used]
    assert min(busy) > 0.8 * case["hidden"]["busy_ns"], "three lanes of a kernel count once"
    assert max(busy) < 2 * case["hidden"]["busy_ns"]


@pytest.mark.parametrize("number", HOST_BOUND)
def test_rows_are_what_was_launched(cases: dict[int, tuple[dict[str, Any], Path]], number: int) -> None:
    case, trace = cases[number]
    written = as_recorded(json.loads(gzip.decompress(trace.read_bytes())))
    rows = [e for e in written["traceEvents"] if e["ph"] == "X"]
    host = {e["args"]["correlation"]: e for e in rows if e.get("cat") == "cuda_runtime"}
    device = [e for e in rows if e.get("cat") in ("kernel", "gpu_memcpy")]
    kernels = [e for e in device if e["cat"] == "kernel"]
    assert all(host[e["args"]["correlation"]]["ts"] <= e["ts"] for e in device), "nothing starts before its launch"
    operators = {e["args"]["External id"] for e in rows if e.get("cat") == "cpu_op"}
    assert all(e["args"]["External id"] in operators for e in kernels), "every kernel belongs to an operator"
    for stream in {e["tid"] for e in device}:
        queue = sorted((e["ts"], e["ts"] + e["dur"]) for e in device if e["tid"] == stream)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(queue)), "a stream is a queue"
    threads = {e["tid"] for e in host.values()}
    assert len(threads) == 1 + case["hidden"]["drawn"]["backward_thread"], "the backward pass may have its own"
    steps = case["hidden"]["drawn"]["active"]
    assert len(kernels) == pytest.approx(steps * case["hidden"]["kernels"], rel=0.05)
    assert sum(e["dur"] for e in kernels) * 1000 == pytest.approx(steps * case["hidden"]["busy_ns"], rel=0.15)
    calls = Counter(e["name"] for e in host.values())
    assert calls["cudaEventRecord"] == calls["cudaStreamWaitEvent"]
    waits = Counter(e["name"] for e in rows if e.get("cat") == "cuda_sync")
    told = case["hidden"]["constants"]["sync_rows"] > 0
    assert (waits["Stream Sync"], waits["Stream Wait Event"]) == (
        (calls["cudaStreamSynchronize"], calls["cudaStreamWaitEvent"]) if told else (0, 0)
    )
    assert ({e["tid"] for e in kernels} == {7, 20}) == (calls["cudaEventRecord"] > 0) == (case["model"] == "branches")


@pytest.mark.parametrize("number", HOST_BOUND)
def test_graphs_pay_where_the_host_is_the_limit(cases: dict[int, tuple[dict[str, Any], Path]], number: int) -> None:
    case, _ = cases[number]
    took = {mode: times["median"] for mode, times in case["step_ns"].items()}
    assert set(took) == {"eager", "step", "forward+backward", "optimizer", "modules", "step:drop-sync"}
    assert took["step"] < 0.7 * took["eager"]
    assert took["step"] < 1.1 * min(took["forward+backward"], took["optimizer"], took["modules"])
    assert took["forward+backward"] < took["eager"]
    assert took["step:drop-sync"] < 1.15 * took["step"]
    constants = case["hidden"]["constants"]
    floor = 0.45 * case["hidden"]["busy_ns"] * constants["graph_scale"]  # two streams may halve it
    assert took["step"] > floor, "a replay keeps the device busy"
