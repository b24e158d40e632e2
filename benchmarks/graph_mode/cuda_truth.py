"""Measure eager steps against CUDA graphs on this machine's GPU and keep traces and timings for scoring: one command, under ten minutes.

`python -m benchmarks.graph_mode.cuda_truth -o DIR` needs torch and one NVIDIA GPU, downloads nothing, and writes a case for each
configuration as soon as it is measured. A worker process does the measuring: when it dies or hangs, another one goes on after the
configuration that it was at. `--device cpu` runs everything that a CPU can.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path
from typing import Any

ANOTHER_WORKER = 3  # exit code of a worker whose CUDA context or allocator cannot be trusted any more
MAX_WORKERS = 40
COMPILE_SHARE = 0.3  # of the time, at most, for configurations that are also compiled
HUNG_S = 120.0
COMPILE_HUNG_S = 300.0
SYNCS = ("none", "each-step", "every-10")
OPTIMIZERS = ("sgd-foreach", "adamw-fused")


def plan(models: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, int, str, str]]:
    """Return all configurations (model, batch, sync, optimizer) in an order whose every beginning is spread evenly.

    Models take turns. From turn to turn each model changes batch, sync and optimizer, and starts at another place of that cycle than its
    neighbors, so a run that ends early lacks a little of everything.
    """
    order = []
    for number, (name, batches) in enumerate(models):
        every = list(product([name], batches, SYNCS, OPTIMIZERS))
        grid = []
        for turn in range(len(every)):
            lap, place = turn // len(batches), turn + number
            optimizer = OPTIMIZERS[(place // 2 + lap // 3 + number) % 2]
            grid.append((name, batches[place % len(batches)], SYNCS[(place + lap) % 3], optimizer))
        order.append(list(dict.fromkeys([*grid, *every])))
    turns = max((len(o) for o in order), default=0)
    return [o[t] for t in range(turns) for o in order if t < len(o)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0 when at least one case was written."""
    args = _parser().parse_args(arguments)
    args.given = sys.argv[1:] if arguments is None else arguments
    args.out = args.out.resolve()  # workers run in the checkout, wherever this was called
    args.out.mkdir(parents=True, exist_ok=True)
    if args.worker is not None:
        return _work(args)
    return _supervise(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_mode.cuda_truth", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for cases/, machine.json and index.json")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="time to spend; configurations that do not fit are dropped evenly"
    )
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu: eager timing and traces only, to test the command",
    )
    parser.add_argument("--models", help="comma-separated names; default: all thirteen")
    parser.add_argument("--max-configs", type=int, help="stop after so many")
    parser.add_argument("--steps", type=int, default=20, help="steps in a timed block")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each mode, taken in turns")
    parser.add_argument("--tiny", action="store_true", help="models of a few thousand parameters, for tests")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--no-stacks", action="store_true", help="no second trace with Python stacks of each model's first case"
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # index of the configuration to start at
    parser.add_argument(
        "--skip", default="", help=argparse.SUPPRESS
    )  # model=mode,…: modes that have failed with a model
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)  # time.time() at which to stop
    return parser


# ------------------------------------------------------------------------------------------------------------- the supervisor


def _supervise(args: argparse.Namespace) -> int:
    """Start workers until the plan or the time is used up; print what they do; write index.json."""
    until = time.time() + args.minutes * 60
    start, workers = -1, 0  # -1: the constants first
    log: list[dict[str, Any]] = []
    while time.time() < until and workers < MAX_WORKERS:
        workers += 1
        args.skip = ",".join(dict.fromkeys(e["mode"] for e in log if e["event"] == "tainted"))
        position, over = _watch(args, start, until, log)
        if over:
            break
        start = position + 1
    cases = [e for e in log if e["event"] == "done"]
    failed = [e for e in log if e["event"] == "failed"]
    index = {
        "device": args.device,
        "minutes": args.minutes,
        "cases": [e["name"] for e in cases],
        "failed": [{"name": e["name"], "reason": e["reason"]} for e in failed],
        "not_run": [e["left"] for e in log if e["event"] == "left"],
        "modes_that_failed": list(dict.fromkeys(e["mode"] for e in log if e["event"] == "tainted")),
        "workers": workers,
    }
    (args.out / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases in {args.out / 'cases'}, {len(failed)} failed, {workers} worker processes")
    return 0 if cases else 1


def _watch(args: argparse.Namespace, start: int, until: float, log: list[dict[str, Any]]) -> tuple[int, bool]:
    """Run one worker; return the configuration it was at and whether it came to its own end."""
    command = [sys.executable, "-m", "benchmarks.graph_mode.cuda_truth", *args.given, "-o", str(args.out)]
    command += ["--worker", str(start), "--until", str(until), "--skip", args.skip]
    root = Path(__file__).resolve().parents[2]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    lines: queue.Queue[str | None] = queue.Queue()
    pump = threading.Thread(target=_pump, args=(worker, lines), daemon=True)
    pump.start()
    try:
        return _listen(worker, lines, start, log)
    finally:
        worker.kill()  # harmless to one that has ended
        worker.wait()
        pump.join()


def _listen(
    worker: subprocess.Popen[str], lines: queue.Queue[str | None], start: int, log: list[dict[str, Any]]
) -> tuple[int, bool]:
    """Follow a worker's events until it ends or falls silent; return where it was and whether it came to its own end."""
    position, name, patience = start, "constants", HUNG_S
    while True:
        try:
            text = lines.get(timeout=patience)
        except queue.Empty:
            log.append({"event": "failed", "name": name, "reason": f"no sign of life for {patience:.0f} s"})
            return position, False
        if text is None:
            code = worker.wait()
            if code == 0:
                return position, True
            if not (log and log[-1].get("name") == name and log[-1]["event"] in ("failed", "done", "tainted")):
                log.append({"event": "failed", "name": name, "reason": f"the worker ended with code {code}"})
            return position, False
        event = _event(text)
        if event is None:
            continue
        log.append(event)
        if event["event"] == "start":
            position, name = event["position"], event["name"]
            patience = COMPILE_HUNG_S if event.get("compiles") else HUNG_S
        if event.get("text"):
            print(event["text"], flush=True)


def _pump(worker: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert worker.stdout is not None
    with worker.stdout as stdout:
        for text in stdout:
            lines.put(text)
    lines.put(None)


def _event(text: str) -> dict[str, Any] | None:
    if not text.startswith('{"event"'):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


# ----------------------------------------------------------------------------------------------------------------- the worker


def _work(args: argparse.Namespace) -> int:
    """Measure configurations from `--worker` on, until the time is up. Tells what it does in one JSON line each."""
    import torch

    from .cuda.measure import lost, measure
    from .cuda.modes import Setting
    from .cuda.workloads import BY_NAME, WORKLOADS

    if args.device == "cuda" and not torch.cuda.is_available():
        reason = "torch sees no CUDA device"
        _tell("failed", name="device", reason=reason, text=f"{reason}; try --device cpu")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    wanted = args.models.split(",") if args.models else [w.name for w in WORKLOADS]
    configurations = plan([(n, BY_NAME[n].batches if not args.tiny else BY_NAME[n].batches[:1]) for n in wanted])
    configurations = configurations[: args.max_configs]
    if args.worker < 0:
        _tell("start", position=-1, name="constants")
        _constants(args)
    slowest = compiling = 0.0
    skip = [tuple(pair.split("=", 1)) for pair in args.skip.split(",") if pair]
    for position in range(max(args.worker, 0), len(configurations)):
        model, batch, sync, optimizer = configurations[position]
        setting = Setting(BY_NAME[model], batch, sync, optimizer, args.device, args.tiny)
        left = args.until - time.time()
        if left < 1.2 * slowest or left <= 0:
            _tell("left", left=setting.name)
            continue
        first = position < len(wanted)
        wanted_here = first and not args.no_compile and BY_NAME[model].compile and args.device == "cuda"
        compiles = wanted_here and compiling < COMPILE_SHARE * args.minutes * 60
        _tell("start", position=position, name=setting.name, compiles=compiles)
        began = time.monotonic()
        try:
            case = measure(
                setting, args.out / "cases", steps=args.steps, rounds=args.rounds, compiled=compiles, stacks=first and not args.no_stacks,
                skip=frozenset(m for n, m in skip if n == model),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - one configuration must not end the run; the reason is kept
            reason, text = f"{type(error).__name__}: {error}"[:300], f"{setting.name}: failed: {error}"[:200]
            _tell("failed", name=setting.name, reason=reason, text=text)
            if lost(error):
                return ANOTHER_WORKER
            _recover(args.device)
            continue
        spent = time.monotonic() - began
        compiling += spent if compiles else 0
        slowest = slowest if compiles else max(slowest * 0.9, spent)
        times = "  ".join(f"{m} {v.median / 1e6:.3f}" for m, v in case.step_time.items())
        _tell("done", name=setting.name, text=f"{setting.name}: {times} ms  ({spent:.1f} s)")
        if case.hidden["tainted"]:
            mode = case.hidden["tainted"]
            if not case.hidden["skipped"][mode].startswith("OutOfMemory"):  # a smaller batch may fit
                _tell("tainted", name=setting.name, mode=f"{model}={mode}")
            return ANOTHER_WORKER
    return 0


def _constants(args: argparse.Namespace) -> None:
    """Write machine.json, the machine's constants as `hpuprof analyze --constants` reads them."""
    try:
        import msgspec

        from hpuprof.recorder.measure_constants import calibrate

        (args.out / "machine.json").write_bytes(msgspec.json.encode(calibrate(args.device)))
    except Exception as error:  # noqa: BLE001 - cases are worth having without constants; the reason is kept
        _tell("failed", name="constants", reason=f"{type(error).__name__}: {error}"[:300])


def _recover(device: str) -> None:
    """Give back what a failed configuration holds."""
    import gc

    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def _tell(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
