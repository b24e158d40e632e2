"""The tools that are compared: how each is installed and how it is called on a file."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CHECKOUT = HERE.parent


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what `pip install` needs, what is called, and which distribution tells its version."""

    name: str
    requirements: tuple[tuple[str, ...], ...]
    arguments: tuple[str, ...]
    distribution: str
    reports_device_rows: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """A tool with the interpreter that runs it."""

    tool: Tool
    python: Path
    version: str

    def command(self, trace: Path, scratch: Path) -> list[str]:
        """Return the command line that analyzes `trace`."""
        fill = {"{trace}": str(trace), "{scratch}": str(scratch / self.tool.name)}
        return [str(self.python), *[fill.get(part, part) for part in self.tool.arguments]]


def hpuprof_tool() -> Tool:
    """Return our own command."""
    return Tool("hpuprof", (), ("-P", "-m", "hpuprof", "analyze", "{trace}", "--json", "--cache", "off"), "hpuprof")


def hta_tool() -> Tool:
    """Return HTA, which lives under the name `traceinsight`."""
    script = str(HERE / "peers" / "ask_hta.py")
    needs = ("traceinsight==0.6.1", "pandas<3")  # pandas 3 refuses what it stores
    return Tool("HTA", (needs,), (script, "{trace}"), "traceinsight", reports_device_rows=True)


def tb_tool() -> Tool:
    """Return torch-tb-profiler without torch, which its loader does not need."""
    script = str(HERE / "peers" / "ask_tb.py")
    needs = ("torch-tb-profiler==0.4.3", "tensorboard>=2.21", "pandas<4")
    return Tool("torch-tb-profiler", (needs,), (script, "{trace}"), "torch-tb-profiler", reports_device_rows=True)


def tracelens_tool(checkout: Path) -> Tool:
    """Return TraceLens from a git checkout; the cloud clients that it asks for are left out."""
    call = ("-m", "TraceLens.Reporting.generate_perf_report_pytorch", "--profile_json_path", "{trace}")
    needs = ("pandas<4", "numpy", "orjson", "tqdm", "openpyxl", "tabulate", "pyyaml", "matplotlib")
    install = (("--no-deps", str(checkout)), needs)
    return Tool("TraceLens", install, (*call, "--output_csvs_dir", "{scratch}"), "TraceLens")


def quiet_environment() -> dict[str, str]:
    """Return this environment without paths that would mix the tools' packages, and where Python keeps what it compiles."""
    mixed = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if key not in mixed}


def _environment(tool: Tool, folder: Path) -> Path:
    """Return the interpreter of a virtual environment with the tool, made once."""
    python, stamp, wanted = folder / "bin" / "python", folder / ".installed", repr(tool.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for arguments in tool.requirements:
        install = [str(python), "-m", "pip", "install", "-q", *arguments]
        subprocess.run(install, check=True, env=quiet_environment())
    stamp.write_text(wanted)
    return python


def _version(tool: Tool, python: Path) -> str:
    code = f"import importlib.metadata as m; print(m.version({tool.distribution!r}))"
    asked = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, env=quiet_environment(), check=False
    )
    return asked.stdout.strip() or "not installed"


def ready(tool: Tool, work: Path, interpreter: Path | None) -> Installed:
    """Return a tool with the interpreter given for it, or with a virtual environment under `work`."""
    python = interpreter.absolute() if interpreter else _environment(tool, work / "envs" / tool.name)
    return Installed(tool, python, _version(tool, python))


PEERS = {"hta": hta_tool, "tb": tb_tool}
