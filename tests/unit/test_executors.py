"""Work that dies, wherever it runs, is done again a bounded number of times; what cannot be done is told."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest

from hpuprof import executors
from hpuprof.errors import MissingDependencyError, TraceFormatError, UsageError
from hpuprof.executors import Journal, Lost, run_all

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import crashing  # processes import it by name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _programs_find_the_modules(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))


def results(*arguments, **options):
    return dict(run_all(*arguments, **options))


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_has_its_result(jobs):
    assert results(crashing.double, [3, 1, 2], jobs=jobs) == {0: 6, 1: 2, 2: 4}


def test_workers_look_for_garbage_as_their_parent_does():
    often, *others = gc.get_threshold()
    gc.set_threshold(12_345, *others)
    try:
        assert results(crashing.garbage, [1, 2], jobs=2) == {0: 12_345, 1: 12_345}
    finally:
        gc.set_threshold(often, *others)


def test_a_worker_killed_once_costs_nothing(tmp_path):
    journal = Journal()
    items = [(str(tmp_path), n) for n in range(6)]
    got = results(crashing.die_once_at_3, items, jobs=2, journal=journal)
    assert got == {n: n for n in range(6)}
    assert journal.notes == {"a worker process died; its work was repeated": 1}


def test_an_item_that_kills_every_worker_costs_itself(tmp_path):
    got = results(crashing.die_always_at_3, list(range(6)), jobs=2)
    assert got.pop(3) == Lost(
        "the worker process was killed (SIGKILL), as the system does when memory runs out, even when run alone"
    )
    assert got == {n: n for n in range(6) if n != 3}


def test_when_every_worker_has_died_others_go_on():
    got = results(crashing.die_always_at_3, [3, 3, *range(4)], jobs=2)
    assert [i for i, result in got.items() if isinstance(result, Lost)] == [0, 1, 5]
    assert {i: got[i] for i in (2, 3, 4)} == {2: 0, 3: 1, 4: 2}


@pytest.mark.parametrize("executable", ["", "/nowhere/python", shutil.which("false")])
def test_without_worker_processes_the_work_is_done_here(monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    journal = Journal()
    assert results(crashing.double, [1, 2, 3], jobs=2, journal=journal) == {0: 2, 1: 4, 2: 6}
    assert journal.notes == {"worker processes cannot be started; analyzed in this process": 3}


def test_a_frozen_program_is_not_started_again(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert results(crashing.double, [1, 2], jobs=2) == {0: 2, 1: 4}


@pytest.mark.parametrize("threads", [None, "7"])
def test_a_worker_has_one_core(monkeypatch, threads):
    if threads:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
    else:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert results(crashing.surroundings, [1, 2], jobs=2) == dict.fromkeys(range(2), (threads or "1", False))


def test_what_work_prints_is_no_result(capfd):
    assert results(crashing.write_to_stdout, [1, 2], jobs=2) == {0: 1, 1: 2}
    assert capfd.readouterr().out == ""


def test_an_error_of_the_work_passes_through():
    with pytest.raises(TraceFormatError, match="bad 2"):
        results(crashing.fail_at_2, [1, 2, 3], jobs=2)
    with ThreadPoolExecutor(1) as pool, pytest.raises(TraceFormatError, match="bad 2"):
        results(crashing.fail_at_2, [1, 2, 3], executor=pool)


def test_an_error_of_the_work_has_the_traceback_of_its_worker():
    with pytest.raises(TraceFormatError) as caught:
        results(crashing.fail_at_2, [1, 2], jobs=2)
    assert "in fail_at_2" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("work", "error"), [(crashing.fail_fussily, "FussyError: fussy"), (crashing.cannot_travel, "cannot_travel")]
)
def test_what_cannot_be_handed_over_is_an_error(work, error):
    with pytest.raises((RuntimeError, AttributeError, PicklingError), match=error):
        results(work, [1, 2], jobs=2)


class Flaky:
    """Fails each item a number of times, as an executor that loses work does."""

    def __init__(self, times, error=None):
        self.times, self.error, self.calls = times, error or BrokenProcessPool("gone"), {}

    def submit(self, work, item):
        self.calls[item] = self.calls.get(item, 0) + 1
        future = Future()
        if self.calls[item] <= self.times:
            future.set_exception(self.error)
        else:
            future.set_result(work(item))
        return future


def test_lost_work_is_given_out_again():
    flaky, journal = Flaky(2), Journal()
    assert results(crashing.double, [1, 2], executor=flaky, journal=journal) == {0: 2, 1: 4}
    assert flaky.calls == {1: 3, 2: 3}
    assert journal.notes == {"submitted again: its worker failed (BrokenProcessPool: gone)": 2}


def test_work_that_no_worker_can_do_is_done_here_where_it_can_be_reached():
    flaky, journal = Flaky(99), Journal()
    got = results(crashing.double, [1, 2], executor=flaky, reachable=lambda item: item == 1, journal=journal, jobs=1)
    assert got[0] == 2
    assert got[1] == Lost("its worker failed (BrokenProcessPool: gone), and the file cannot be reached from here")
    assert flaky.calls == {1: executors.SUBMISSIONS, 2: executors.SUBMISSIONS}


def test_work_that_a_scheduler_gave_up_is_not_forced_on_it():
    flaky = Flaky(99, type("KilledWorker", (Exception,), {})("3 workers died"))
    assert results(crashing.double, [1], executor=flaky) == {0: 2}
    assert flaky.calls == {1: 1}


def test_an_executor_that_takes_no_work_is_left():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    journal = Journal()
    assert results(crashing.double, [1, 2], executor=pool, journal=journal) == {0: 2, 1: 4}
    assert "accepts no work" in next(iter(journal.notes))


def test_workers_without_hpuprof_are_an_error_of_the_caller():
    with pytest.raises(UsageError, match="cannot load hpuprof: No module named 'hpuprof'"):
        results(crashing.double, [1], executor=Flaky(99, ModuleNotFoundError("No module named 'hpuprof'")))


class Client:
    """What `_Watch` asks of a Dask client."""

    def __init__(self, status="running", workers=2):
        self.status, self.workers, self.scheduler = status, workers, self

    def scheduler_info(self):
        return {}

    def ncores(self):
        return {}

    def sync(self, _, **__):
        return dict.fromkeys(range(self.workers), 1)


class Never:
    """An executor whose work never ends."""

    def __init__(self, client):
        self._client, self.futures = client, []

    def submit(self, work, item):
        self.futures.append(Future())
        return self.futures[-1]


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (Client(status="connecting"), "the scheduler went away"),
        (Client(status="closed"), "the scheduler went away"),
        (Client(workers=0), "the scheduler had no worker for 0 s"),
    ],
)
def test_a_cluster_that_is_gone_does_not_hold_the_run(monkeypatch, client, reason):
    monkeypatch.setattr(executors, "LOST_SCHEDULER_S", 0.0)
    monkeypatch.setattr(executors, "LOST_WORKERS_S", 0.0)
    monkeypatch.setattr(executors, "_LOOK_S", 0.01)
    never, journal = Never(client), Journal()
    assert results(crashing.double, [1, 2], executor=never, journal=journal) == {0: 2, 1: 4}
    assert journal.notes == {f"{reason}; analyzed locally where possible": 2}
    assert all(future.cancelled() for future in never.futures)


def test_a_scheduler_address_needs_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingDependencyError, match="needs the package distributed") as caught,
        executors.dask_executor("tcp://x"),
    ):
        pass
    assert "pip install 'distributed>=" in caught.value.hint


SLEEPING = """
import crashing, sys
from hpuprof.executors import run_all
try: list(run_all(crashing.sleep_long, [{folder!r}] * 4, jobs=2))
except KeyboardInterrupt: sys.exit(130)
"""


@contextmanager
def sleeping(folder):
    """A program and the ids of its two workers, which are at work."""
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING.format(folder=str(folder))], stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            end = time.monotonic() + 300
            while len(list(folder.glob("*.pid"))) < 2:
                assert time.monotonic() < end, "the workers never began"
                time.sleep(0.02)
            yield process, [int(p.stem) for p in folder.glob("*.pid")]
        finally:
            process.kill()


def test_interrupting_ends_the_workers_and_says_nothing(tmp_path):
    with sleeping(tmp_path) as (process, pids):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and its workers
        _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (130, b"")
    assert not any(_alive(pid) for pid in pids)


def test_workers_end_when_their_program_is_killed(tmp_path):
    with sleeping(tmp_path) as (process, pids):
        process.kill()
        _, told = process.communicate(timeout=300)
        assert told == b""
    end = time.monotonic() + 60
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < end, "the workers go on"
        time.sleep(0.02)


def _alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Ended(BaseException):
    """What the handler of a signal raises."""


def test_a_signal_waits_until_the_process_is_started(monkeypatch: pytest.MonkeyPatch):
    made = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            signal.raise_signal(signal.SIGTERM)
            super().__init__(*args, **options)
            made.append(self)

    def end(*_: object) -> None:
        raise Ended

    monkeypatch.setattr(subprocess, "Popen", Popen)
    old = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(Ended):
            results(crashing.double, [1, 2], jobs=2)
    finally:
        signal.signal(signal.SIGTERM, old)
    (process,) = made
    assert process.returncode == -signal.SIGKILL, "it was ended, and waited for"
