"""Double the sizes of the shapes in tests/corpus/grown.py and show what each command's CPU time is multiplied by: 2 means linear.

`python -m benchmarks.growth --shapes many_streams nested_modules --check 2.6`
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "analyze": ("analyze", "--json", "--quiet"),
    "text": ("analyze", "--quiet"),
    "markdown": ("analyze", "--quiet", "-f", "-o", "{out}/report.md"),
    "html": ("analyze", "--quiet", "-f", "-o", "{out}/report.html"),
    "inspect": ("inspect",),
    "merge": ("merge", "-o", "{out}/merged.json", "-f"),
    "check": ("check",),
    "convert": ("convert", "-o", "{out}/tab", "-f"),
    "export": ("export", "--table", "slices", "-o", "{out}/slices.csv", "-f"),
}
LONG_S = 60  # a run that takes longer is not doubled once more


def grown() -> ModuleType:
    """Return the module of the corpus, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("grown", ROOT / "tests" / "corpus" / "grown.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["grown"] = module
    spec.loader.exec_module(module)
    return module


def cpu_s(python: Path, arguments: list[str], limit_s: int) -> tuple[float, int]:
    """Run hpuprof once; return its CPU time in s, children included, and its exit code."""
    environment = {**os.environ, "HPUPROF_CACHE": "off", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [python, "-m", "hpuprof", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (limit_s, limit_s + 1)),  # noqa: PLW1509 - no threads here
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, child.returncode


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter with hpuprof")
    made.add_argument("--shapes", nargs="+", metavar="NAME", help="which ones (default: all)")
    made.add_argument("--commands", nargs="+", choices=COMMANDS, help="default: those that the shape is tested with")
    made.add_argument("--start", type=float, default=0.25, help="first size, times that of the corpus")
    made.add_argument("--doublings", type=int, default=2)
    made.add_argument("--limit", type=int, default=120, metavar="S", help="CPU seconds after which a run is ended")
    made.add_argument("--check", type=float, metavar="RATIO", help="exit 1 when a last doubling costs more than this")
    return made


def series(options: argparse.Namespace, command: str, paths: list[Path], out: Path, idle_s: float) -> list[float]:
    """Return the CPU seconds of a command on files of growing size, less those of a start; ends where a run fails."""
    taken: list[float] = []
    for path in paths:
        words = [word.format(out=out) for word in COMMANDS[command]]
        seconds, code = cpu_s(options.python, [words[0], str(path), *words[1:]], options.limit)
        if code:
            print(f"    {command}: exit {code} after {seconds:.1f} s on {path.stat().st_size / 1e6:.1f} MB", flush=True)
            break
        taken.append(max(0.0, seconds - idle_s))
        if seconds > LONG_S:
            break
    return taken


def main() -> None:
    """Run every shape and print seconds and ratios."""
    options = parser().parse_args()
    steep = False
    print("CPU seconds beyond those for the smallest file of the shape, and the ratio of the last doubling")
    for case in grown().CASES:
        if options.shapes and case.name not in options.shapes:
            continue
        sizes = [max(1, int(case.size * options.start * 2**i)) for i in range(options.doublings + 1)]
        print(f"{case.name}: {', '.join(f'{size:,}' for size in sizes)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="hpuprof-growth-") as folder:
            paths = [Path(folder, f"{size}-{case.file_name}") for size in sizes]
            for path, size in zip(paths, sizes, strict=True):
                path.write_bytes(case.make(size))
            tiny = Path(folder, f"tiny-{case.file_name}")
            tiny.write_bytes(case.make(8))
            for command in options.commands or case.commands:
                (idle_s,) = series(options, command, [tiny], Path(folder), 0.0) or [0.0]
                taken = series(options, command, paths, Path(folder), idle_s)
                ratio = taken[-1] / taken[-2] if len(taken) > 1 and taken[-2] else 0.0
                bad = len(taken) < len(sizes) or (options.check is not None and ratio > options.check)
                steep |= bad
                print(f"    {command:9} {'  '.join(f'{s:6.2f}' for s in taken)}  ×{ratio:.2f}{' !' * bad}", flush=True)
    sys.exit(options.check is not None and steep)


if __name__ == "__main__":
    main()
