"""Run the peers on a trace and store their numbers as JSON, to hold hpuprof's own numbers against.

`python -m benchmarks.agreement TRACE --python-hta PATH --python-tb PATH --out FILE`

Give one or both interpreters.
A folder is read by HTA as one run of several ranks; torch-tb-profiler reads each of its files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness import tools


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("trace", type=Path, help="a trace file, or a folder with one file for each rank")
    made.add_argument("--python-hta", type=Path, metavar="PATH", help="the interpreter that has traceinsight")
    made.add_argument("--python-tb", type=Path, metavar="PATH", help="the interpreter that has torch-tb-profiler")
    made.add_argument("--all-steps", action="store_true", help="keep HTA from dropping the last profiler step")
    made.add_argument("--exact", action="store_true", help="keep HTA from rounding stamps to whole microseconds")
    made.add_argument("--out", type=Path, required=True)
    return made


def ask(python: Path, script: str, trace: Path, *flags: str, env: dict[str, str] | None = None) -> object:
    """Return what the peer's script says about `trace`, or `{"failure": ...}` when the peer cannot say."""
    with tempfile.TemporaryDirectory(prefix="agreement-") as folder:
        answer = Path(folder, "answer.json")
        command = [str(python), str(tools.HERE / "peers" / script), str(trace), "--out", str(answer), *flags]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode or not answer.exists():
            lines = done.stderr.strip().splitlines()
            return {"failure": f"exit {done.returncode}: {lines[-1] if lines else ''}"}
        return json.loads(answer.read_text())


def ask_hta(options: argparse.Namespace) -> object:
    """Return HTA's numbers; `--exact` sets the switch that HTA reads before its first load."""
    env = tools.quiet_environment()
    if options.exact:
        env["HTA_DISABLE_NS_ROUNDING"] = "1"
    flags = ["--all-steps"] if options.all_steps else []
    return ask(options.python_hta, "ask_hta.py", options.trace.absolute(), *flags, env=env)


def ask_tb(options: argparse.Namespace) -> object:
    """Return torch-tb-profiler's numbers, by file name."""
    trace: Path = options.trace.absolute()
    files = sorted([*trace.glob("*.json"), *trace.glob("*.json.gz")]) if trace.is_dir() else [trace]
    env = tools.quiet_environment()
    return {file.name: ask(options.python_tb, "ask_tb.py", file, env=env) for file in files}


def main() -> None:
    """Ask the peers whose interpreters were given and write one file."""
    options = parser().parse_args()
    answers: dict[str, object] = {"trace": options.trace.name}
    answers["settings"] = {"all_steps": options.all_steps, "exact": options.exact}
    if options.python_hta:
        answers["hta"] = ask_hta(options)
    if options.python_tb:
        answers["torch_tb_profiler"] = ask_tb(options)
    options.out.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
