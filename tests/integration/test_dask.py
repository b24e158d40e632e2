"""A real Dask cluster on loopback: the same bytes as without it, also when a worker or the scheduler is killed on the way."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import needs
import pytest

import hpuprof
from hpuprof import executors
from hpuprof.errors import UsageError
from hpuprof.render import render

needs.module("cluster", "distributed", "Dask is the extra `dask`")
needs.module("remote", "aiohttp", "web sources need aiohttp")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from dask_cluster import PATIENCE_S, Gate, cluster, end, wait_for, web_server

# Sockets and threads of a library in the middle of a kill are not ours to close.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
RANKS = "hpu_g3_lazy_8_ranks"


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dask")) as made:
        yield made


def as_json(report):
    return render(report, ".json")


def test_serial_processes_and_dask_give_the_same_bytes(samples, shared_cluster):
    from distributed import Client

    serial = as_json(hpuprof.analyze(samples / RANKS, jobs=1))
    assert as_json(hpuprof.analyze(samples / RANKS, jobs=2)) == serial
    assert as_json(hpuprof.analyze(samples / RANKS, scheduler=shared_cluster.address)) == serial
    with Client(shared_cluster.address, set_as_default=False) as client:
        names = sorted((samples / RANKS).glob("*.gz"))
        assert as_json(hpuprof.analyze(names[::-1], executor=client.get_executor())) == serial


def test_real_ranks_too(real_traces, shared_cluster):
    folder = real_traces / "dlrm_8_ranks"
    serial = as_json(hpuprof.analyze(folder, jobs=1))
    assert as_json(hpuprof.analyze(folder, jobs=2)) == serial
    assert as_json(hpuprof.analyze(folder, scheduler=shared_cluster.address)) == serial


def test_relative_paths_and_a_client_instead_of_its_executor(samples, shared_cluster, monkeypatch, tmp_path):
    from distributed import Client

    monkeypatch.chdir(samples)  # the workers are elsewhere
    serial = as_json(hpuprof.analyze(RANKS, jobs=1))
    with Client(shared_cluster.address, set_as_default=False) as client:
        assert as_json(hpuprof.analyze(RANKS, executor=client)) == serial
        for name, options in (("here", {}), ("there", {"executor": client})):
            hpuprof.merge(RANKS, tmp_path / f"{name}.json", **options)
        monkeypatch.chdir(tmp_path)
        converted = hpuprof.convert(samples / RANKS, "tab", executor=client)
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()
    assert len(list((tmp_path / "tab").rglob("*.gz"))) == len(converted.files) == 8


def test_the_workers_read(samples, shared_cluster):
    gate = Gate()
    with web_server(samples / RANKS, gate) as address:
        run = hpuprof.load(address)
        before = dict(gate.asked)
        report = hpuprof.analyze(run, scheduler=shared_cluster.address)
    assert [d for d in report.data.diagnostics if d.code == "HP162"] == [], "nothing came back to this process"
    assert all(gate.asked[f.name] > before[f.name] for f in run.files)


def test_paths_that_only_workers_have_are_found_there(samples, shared_cluster, monkeypatch):
    from hpuprof import analysis_run as run
    from hpuprof.errors import InputError

    def blind(paths):
        raise InputError("no such file or directory")

    real = run.search
    asked = []

    class Workers:
        """Stands for an executor elsewhere: what is sent there sees the files."""

        def submit(self, work, *arguments):
            from concurrent.futures import Future

            asked.append(work)
            future = Future()
            future.set_result(real(*arguments) if work is blind else work(*arguments))
            return future

    monkeypatch.setattr(run, "search", blind)
    assert hpuprof.load(samples / RANKS, executor=Workers()).ranks == list(range(8))
    assert asked == [blind]
    with pytest.raises(InputError):
        hpuprof.load(samples / RANKS)


def held_run(samples, gate_at):
    """A run from a web server that holds back one file."""
    name = sorted(p.name for p in (samples / RANKS).glob("*.gz"))[gate_at]
    return Gate(name)


def test_a_worker_killed_on_the_way_costs_nothing(samples, tmp_path):
    import psutil

    gate = held_run(samples, 3)
    with cluster(tmp_path) as made, web_server(samples / RANKS, gate) as address:
        run = hpuprof.load(address)
        port, killed = int(address.rpartition(":")[2]), []

        def kill_the_reader():
            gate.reached.wait(PATIENCE_S)

            def reads(worker):
                connections = psutil.Process(worker.pid).net_connections()
                return any(c.raddr and c.raddr.port == port and c.status == "ESTABLISHED" for c in connections)

            def reader():
                """The one at the gate, while the other is done with its files or between two of them."""
                reading = [worker for worker in made.workers if reads(worker)]
                return reading[0] if len(reading) == 1 else None

            victim = wait_for(reader, "nobody reads")
            killed.append(end(victim))
            gate.open.set()

        gate.hold = True
        thread = threading.Thread(target=kill_the_reader)
        thread.start()
        report = hpuprof.analyze(run, scheduler=made.address)
        thread.join()
        assert killed == [-9]
        gate.hold = False
        assert as_json(report) == as_json(hpuprof.analyze(address, jobs=1))


def test_a_scheduler_killed_on_the_way_leaves_the_rest_to_this_machine(samples, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "LOST_SCHEDULER_S", 2.0)
    gate = held_run(samples, 3)
    with cluster(tmp_path) as made, web_server(samples / RANKS, gate) as address:
        run = hpuprof.load(address)

        def kill_the_scheduler():
            gate.reached.wait(PATIENCE_S)
            end(made.scheduler)
            gate.open.set()

        gate.hold = True
        thread = threading.Thread(target=kill_the_scheduler)
        thread.start()
        report = hpuprof.analyze(run, scheduler=made.address)
        thread.join()
        (told,) = [d for d in report.data.diagnostics if d.code == "HP162"]
        assert told.text == "the scheduler went away; analyzed locally where possible"
        assert 1 <= told.count <= 8
        assert report.data.steps == hpuprof.analyze(samples / RANKS).data.steps
        assert [d for d in report.data.diagnostics if d.code == "HP114"] == []


def test_no_scheduler_is_a_mistake_of_the_caller(samples, monkeypatch):
    monkeypatch.setattr(executors, "CONNECT_S", 1.0)
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        hpuprof.analyze(samples / RANKS, scheduler="tcp://127.0.0.1:9")


def test_the_command_line_reaches_a_scheduler(samples, shared_cluster):
    command = [sys.executable, "-m", "hpuprof", "analyze", str(samples / RANKS), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hpuprof.__file__).resolve().parents[1])}
    outputs = [
        subprocess.run([*command, *more], capture_output=True, text=True, check=True, env=environment)
        for more in ((), ("--scheduler", shared_cluster.address))
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert [o.stderr for o in outputs] == ["", ""]


def test_interrupting_a_run_on_a_cluster_ends_it(samples, tmp_path):
    import signal

    gate = held_run(samples, 3)
    with cluster(tmp_path) as made, web_server(samples / RANKS, gate) as address:
        hpuprof.load(address)
        gate.free, gate.hold = 2 * gate.asked[next(iter(gate.names))], True  # discovery must not wait at the gate
        environment = {**os.environ, "PYTHONPATH": str(Path(hpuprof.__file__).resolve().parents[1])}
        with subprocess.Popen(
            [sys.executable, "-m", "hpuprof", "analyze", address, "--scheduler", made.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process:
            try:
                assert gate.reached.wait(PATIENCE_S)
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                out, told = process.communicate(timeout=PATIENCE_S / 2)  # while the gate is still shut
            finally:
                process.kill()
        assert (process.returncode, out, told) == (130, b"", b"\n")
