"""Codes for what lies with traces: folders, logs of steps, windows, files of a device's software. HP180 to HP193."""

from __future__ import annotations

from hpuprof.diagnostics.diagnostic import Diagnostic

OF_RUNS = (
    Diagnostic(
        code="HP180",
        severity="error",
        title="A folder could not be searched",
        cause="Permission to list it is missing, or the storage refused. The traces in it, and the ranks that they "
        "hold, are missing.",
        remedy="Check its permissions; on a server, check that it lists its folders.",
        lossy=True,
    ),
    Diagnostic(
        code="HP181",
        severity="warning",
        title="The windows do not stand for the run",
        cause="By the log of steps, steps near the recorded windows take 10 % more or less time than the run's median "
        "step, both without the profiler.",
        remedy="Record a window in the steady state: raise `wait`, or use `every_n_steps` and `repeat`. A run of ten "
        "seconds and more with `on_demand` adds one by itself.",
    ),
    Diagnostic(
        code="HP182",
        severity="warning",
        title="Memory grows",
        cause="By the log of steps, resident memory (by 5 % and 32 MiB) or memory allocated on the device (by 32 MiB) "
        "is larger in the last quarter of the run than in the second.",
        remedy="Look for tensors kept with their graph (`losses.append(loss)`), growing caches, and workers of loaders "
        "that copy Python objects.",
    ),
    Diagnostic(
        code="HP183",
        severity="warning",
        title="More threads than CPUs",
        cause="The ranks of a host have more threads for operators than CPUs, and are interrupted at least 100 times a "
        "second.",
        remedy="Set `OMP_NUM_THREADS` to the CPUs of the host divided by its ranks, loader workers left out.",
    ),
    Diagnostic(
        code="HP184",
        severity="info",
        title="Logs of earlier runs left out",
        cause="Several runs logged their steps into one directory; tables of the whole run show the newest.",
        remedy="Give each run its own directory.",
    ),
    Diagnostic(
        code="HP185",
        severity="info",
        title="The step time is another tool's",
        cause="A file in the traces' directory holds the time per step without the profiler. Gains count from it.",
        remedy="Nothing to do; --step-time or --step-time-from replaces it.",
    ),
    Diagnostic(
        code="HP186",
        severity="warning",
        title="Another tool's step time does not fit",
        cause="The time per step in a file of the traces' directory is longer than the recorded step, or less than a "
        "tenth of it: it is of another run, or counts micro-batches, epochs or requests. It was not used.",
        remedy="Give the right one with --step-time, or move the file.",
    ),
    Diagnostic(
        code="HP187",
        severity="warning",
        title="Windows of a rank differ",
        cause="The typical steps of one recorded window launch other work, or take 10 % or more time than those of "
        "another of the same rank: the program, its data or the machine changed between them. Each is judged apart "
        "(table windows); headline, metrics, gates and comparisons are of the one with the most time.",
        remedy="`hpuprof compare FILE FILE` says what differs.",
    ),
    Diagnostic(
        code="HP188",
        severity="info",
        title="What the device's bridge counted",
        cause="The file that the bridge writes where its metrics are on: graphs that were compiled and how long that "
        "took, recipes that its cache lacked, and defragmentations of device memory, over the life of each process.",
        remedy="Few graphs are compiled in a run whose shapes stay: compare the number with that of the first minutes.",
    ),
    Diagnostic(
        code="HP189",
        severity="warning",
        title="Operators fall back to the CPU",
        cause="The device's bridge has no kernel for them: each call brings its operands to the host, waits, and sends "
        "the results back. Counted over the life of each process.",
        remedy="Replace these operators, or keep them out of the step; graphs cannot hold them.",
    ),
    Diagnostic(
        code="HP192",
        severity="info",
        title="What the server counted",
        cause="The events that the server's own profiler wrote: how often each phase ran and how long it took, and the "
        "share of padding, 1 less the sequences decoded over those that the chosen buckets hold.",
        remedy="Much padding: add buckets near the usual batch sizes.",
    ),
    Diagnostic(
        code="HP193",
        severity="warning",
        title="Graphs are compiled while the server runs",
        cause="Requests met a bucket that the warm-up had not compiled, and waited for it.",
        remedy="Let the warm-up cover these buckets, or limit batch sizes and lengths to those it covers.",
    ),
)
