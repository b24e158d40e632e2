"""Shared fixtures: the samples, and real traces of other people when they lie beside the checkout."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))
sys.path.insert(1, str(TESTS / "corpus"))
sys.path.append(str(ROOT))  # `benchmarks` is a namespace package of the checkout

from browser import require_browser, stop
from builder import TraceBuilder
from limited import Limited

# What an example takes says how busy the machine is, nothing of the code.
hypothesis.settings.register_profile(
    "hpuprof", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("hpuprof")

# Jobs that a shell runs in the background ignore Ctrl-C, and children inherit that; those that tests interrupt must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Marks by folder, file and test below tests/, all in this place. `pytest -m "not slow and not benchmark"` is a quick run.
MARKS = {
    "unit": ("unit",),
    "browser": ("tab/test_browser.py", "integration/test_html_browser.py", "integration/test_viewers.py"),
    "cluster": ("integration/test_dask.py",),
    "recorder": ("recorder",),
    "benchmark": (
        "accuracy",
        "integration/test_plan_truth.py",
        "integration/test_virtual_device.py",
        "unit/test_graph_mode_draw.py",
        "unit/test_graph_mode_score.py",
        "unit/test_public_traces.py",
    ),
    "evidence": (
        "accuracy/test_cuda_truth.py::test_the_command_writes_cases_an_index_and_the_machine_s_constants",
        "accuracy/test_divisions.py",
        "accuracy/test_job_fixes.py::test_a_fix_is_priced_on_all_ranks_together",
        "accuracy/test_layers.py",
        "accuracy/test_lazy_programs.py",
        "accuracy/test_predictions.py",
        "accuracy/test_suspects.py::test_a_slow_host_and_a_slow_link_are_named_together",
        "accuracy/test_world_cases.py::test_a_clean_profile_runs_as_fast_as_no_profile_and_every_round_is_equal",
        "accuracy/test_world_cases.py::test_hpuprof_reads_each_family_and_finds_its_steps_and_the_unprofiled_time",
        "accuracy/test_world_cases.py::test_in_a_clean_trace_every_device_row_starts_exactly_when_it_can",
        "accuracy/test_world_mixes.py",
        "accuracy/test_world_engine.py::test_an_earlier_simulation_of_400_kernels_is_reproduced",
        "integration/test_plan_truth.py",
        "integration/test_virtual_device.py",
        "property/test_contraction_laws.py::test_simulated_jobs_step_the_same_contracted",
    ),
    "slow": (
        "recorder",
        "accuracy",
        "tab",
        "property",
        "robustness",
        "integration",
    ),
}

REAL_TRACES = Path(os.environ.get("HPUPROF_REAL_TRACES", ROOT.parent / "shared" / "traces"))


# Files that share what is dear to make: one worker runs them, one after the other.
TOGETHER = {
    "a device that is compiled": ("integration/test_plan_truth.py", "integration/test_virtual_device.py"),
    "processes that have Lightning": ("recorder",),
    "reports of real traces": (
        "integration/test_answers.py",
        "integration/test_critical_cycle.py",
        "integration/test_real_capturability.py",
        "integration/test_real_traces.py",
    ),
    "a TensorBoard": ("tab",),
}


@cache
def marks(path: Path) -> tuple[list[str], dict[str, str]]:
    """Return the marks of a file, and those of its tests by name; one of another project, run with these, has none."""
    if not path.is_relative_to(TESTS):
        return [], {}
    file = path.relative_to(TESTS)
    places = [(mark, *place.partition("::")) for mark, known in MARKS.items() for place in known]
    whole = [mark for mark, place, _, test in places if not test and file.is_relative_to(place)]
    return whole, {test: mark for mark, place, _, test in places if test and file == Path(place)}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give files, or files together, to workers."""
    from xdist.scheduler import LoadFileScheduling

    shared = {Path("tests", place): name for name, places in TOGETHER.items() for place in places}

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((name for place, name in shared.items() if Path(file).is_relative_to(place)), file)

    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they lie."""
    for item in items:
        whole, of_test = marks(item.path)
        name = getattr(item, "originalname", item.name)
        for mark in (*whole, *([of_test[name]] if name in of_test else [])):
            item.add_marker(mark)
    if "PYTEST_XDIST_WORKER" in os.environ:  # short files come last, so that no worker is left with a long one
        items.sort(key=lambda item: item.get_closest_marker("unit") is not None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads of torch that wait for each other take a busy machine's time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The project's own sample traces."""
    return ROOT / "sample_traces"


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Real traces of other people; the test is skipped where they are not at hand."""
    if not REAL_TRACES.is_dir():
        pytest.skip("no real traces: set HPUPROF_REAL_TRACES")
    return REAL_TRACES


@pytest.fixture(scope="session")
def limited() -> Iterator[Limited]:
    """`limited("analyze", path, cpu_s=5)` runs a command in a child that the system limits."""
    with Limited() as run:
        yield run


@pytest.fixture(scope="session")
def good_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound trace of rank 7, to lie beside an odd one."""
    builder = TraceBuilder(distributedInfo={"rank": 7, "world_size": 8}).steps(6, 100)
    for step in range(6):
        builder.host("aten::mm", step * 100 + 10, 20).kernel("gemm", step * 100 + 30, 40, launch=step * 100 + 12)
    return builder.write(tmp_path_factory.mktemp("good") / "good_7.1700000000000000000.pt.trace.json")


@pytest.fixture(scope="session")
def chromium() -> None:
    """What `Browser` needs."""
    require_browser()


@pytest.fixture(scope="session", autouse=True)
def _browser_ends() -> Iterator[None]:
    """One browser serves all tests of a process."""
    yield
    stop()


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """Settings of the machine must not reach a test, nor what tests of a module share: that is made before a test's own fixtures."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("HPUPROF_") and name not in ("HPUPROF_REAL_TRACES", "HPUPROF_UPDATE_GOLDEN_FILES"):
                patch.delenv(name)
        patch.setenv("HPUPROF_CACHE", "off")  # what one test reduced must not answer another
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def _of_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remembered")


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch, _of_samples: Path) -> None:
    """What was reduced of samples answers others: for tests of what is printed of one report, again and again."""
    monkeypatch.setenv("HPUPROF_CACHE", str(_of_samples))


@pytest.fixture
def run(capsys):
    """The command line in this process: arguments to exit code, stdout and stderr."""
    from hpuprof.cli.main import main

    def call(*arguments):
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
