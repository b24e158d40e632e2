"""Codes of what a trace could not say, and of what was lost while reading: text, cause, remedy. HP1xx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Diagnostic:
    """One code with its explanation. `lossy`: rows or files were lost (fails `--strict`)."""

    code: str
    severity: Severity
    title: str
    cause: str
    remedy: str
    lossy: bool = False


_ALL = (
    Diagnostic("HP101", "warning", "The file is cut short", "The writer was killed, the disk was full, or the copy is incomplete. Every whole row before the cut was read.", "Record again, or copy the file again; the numbers cover what was there.", lossy=True),
    Diagnostic("HP102", "warning", "Rows were lost", "Pieces of the file are no JSON and could not be repaired; two ranks writing one file look like this.", "Give every rank a file of its own; report the file if only one process wrote it.", lossy=True),
    Diagnostic("HP103", "info", "Rows were repaired", "Raw control characters, bad UTF-8, NaN, stray quotes or backslashes in names (PyTorch and Synapse write them at times). Plain fields were kept; arguments may be missing.", "Nothing to do; newer PyTorch escapes its names."),
    Diagnostic("HP104", "info", "Rows that no rule knows", "A category that hpuprof has not seen. The rows are counted and left out of every number.", "`hpuprof inspect` lists them by category and thread; please report them."),
    Diagnostic("HP105", "warning", "The device was not traced", "The file holds no device rows: the profiler ran without the device activity, or hardware tracing was off (`hl-prof-config --hw-trace off`, `HABANA_PROFILE=0`). This does not mean an idle device.", "Record with the device activity (CUDA, XPU, HPU) and, on Gaudi, with hardware tracing on."),
    Diagnostic("HP106", "warning", "Device rows in few of the steps", "The device buffer overflowed or tracing began late; idle time computed from such a trace is false.", "Record fewer steps, or raise the buffer; conclusions about the device are withheld."),
    Diagnostic("HP107", "warning", "One row holds most of the device time", "A damaged duration, or a graph replay recorded as one row.", "Look at the row; conclusions about the device are withheld."),
    Diagnostic("HP108", "warning", "Graph replays are under-recorded", "More than half of the graph launches show few or none of their kernels; the missing kernels would read as idle time.", "Record without graphs, or with a newer driver; conclusions about the device are withheld."),
    Diagnostic("HP109", "info", "Steps were inferred", "The trace has no step markers; steps come from a repeating annotation, from the period of the operator sequence, or the whole trace counts as one.", "Call `profiler.step()` once a batch, or use HPUProfiler."),
    Diagnostic("HP110", "info", "Few steps", "Fewer than three steps enter the medians; spread and outliers cannot be judged.", "Record five steps or more."),
    Diagnostic("HP111", "info", "Rows without an end or a beginning", "The window cut them: begin without end, end without begin, or a row without duration. They were left out.", "Nothing to do at the borders of a recording; many of them inside point to a damaged file."),
    Diagnostic("HP112", "warning", "Rows with impossible times", "Negative durations, durations or distances of more than a day, no time stamp, or (when merging) a phase that is no letter. They were left out.", "Known profiler bugs; update PyTorch or the device's profiler.", lossy=True),
    Diagnostic("HP113", "warning", "Ranks were guessed", "Neither the files nor their names give a rank, so names were numbered in order.", "Use `--rank-from`, or names such as `host_0.<time>.pt.trace.json`."),
    Diagnostic("HP114", "error", "A file could not be analysed", "It is no trace, or nothing in it could be read. The other files were analysed.", "Remove it or copy it again.", lossy=True),
    Diagnostic("HP115", "info", "Operators that outlive their parent", "Rows on one thread overlap without nesting; they were cut at the parent's end for self times.", "Nothing to do."),
    Diagnostic("HP116", "info", "Device rows without a launch", "The launch lies outside the recording, or the writer gives no correlation and order does not tell it (HP190). Such rows count as device work but belong to no operator.", "Nothing to do; start the recording a step earlier to have fewer."),
    Diagnostic("HP117", "info", "Several devices in one process", "Device rows of several devices count together: busy means that any of them was.", "Give each device a process of its own to see them apart."),
    Diagnostic("HP118", "warning", "Ranks are missing", "The traces name more ranks than there are files.", "Collect the traces of all ranks."),
    Diagnostic("HP119", "warning", "Damaged compression", "The gzip stream is damaged or ends early. What came before was read.", "Copy the file again.", lossy=True),
    Diagnostic("HP120", "info", "A candidate was left out", "A file in the directory looks like a trace by its name but holds no trace events.", "Nothing to do."),
    Diagnostic("HP121", "warning", "The device was profiled synchronously", "Every launch call outlives the device row that it launched: CUDA_LAUNCH_BLOCKING or a profiler that drains the device. Overlap of host and device was destroyed by the measurement.", "Record without forced synchronisation to see how much host and device really overlap."),
    Diagnostic("HP122", "info", "Profiling slows steps down", "The trace does not hold the step time without the profiler; recorded steps are typically 1.4 to 3.6 times slower on the host.", "Record with HPUProfiler, which times steps without the profiler first."),
    Diagnostic("HP123", "info", "A table was cut", "Only the largest rows of the table (operators, kernels, modules, shapes, obstacles) are kept.", "Nothing to do; totals cover all rows."),
    Diagnostic("HP124", "info", "No step is typical", "All steps compile, warm up or lie at a border; the numbers come from untypical steps.", "Record more steps after a warm-up."),
    Diagnostic("HP125", "info", "Recordings differ in kind", "The files belong to different stages or actions; the answer speaks of one of them.", "See the table of files; analyse the others apart."),
    Diagnostic("HP126", "warning", "The host was not traced", "The file holds device rows only, as the hardware profiler writes them. Engine times are right; why the device idled cannot be told.", "Record with PyTorch's profiler to see host and device together."),
    Diagnostic("HP127", "warning", "Several runs in one directory", "The recorder wrote the same window of the same rank more than once: a directory was used by several runs. All of them enter the numbers.", "Give each run a directory of its own, or remove the old files."),
    Diagnostic("HP160", "info", "Long tables cover some of the ranks", "So many ranks that a table would pass its limit (`--table-rows`, 20,000 rows). The lowest rank comes first, then the ranks with the most work of their own in a step (wall time less exposed communication), for which the others wait; of memory curves, those with the largest peaks. Medians, findings, and the tables of files and ranks cover every rank.", "Analyse the files of a rank alone to see its rows, or raise `--table-rows` (0: no limit)."),
    Diagnostic("HP161", "warning", "A file changed while it was read", "It was still being written. It was read several times, and changed each time; the numbers may mix states of it.", "Analyse it when its writer is done.", lossy=True),
    Diagnostic("HP162", "info", "Work was done again", "A worker died, or the scheduler went away. What it left was given out again, or analysed on this machine; the numbers are whole.", "If it happens again: fewer jobs (`--jobs`) or more memory for each worker."),
    Diagnostic("HP128", "warning", "Clocks of ranks are unrelated", "The stamps of the ranks lie more than a day apart: they were recorded at different times, or count from different origins. Nothing can be said about who came first.", "Merge traces of one recording; `hpuprof merge --clock manifest` takes offsets that you know."),
    Diagnostic("HP140", "warning", "Clocks of some hosts are unrelated", "No collective with ranks on both hosts was matched, or the manifest does not name them. Nothing that compares such ranks is computed.", "Record a window that holds collectives of all ranks, or give `--clock manifest:FILE`."),
    Diagnostic("HP141", "warning", "Ranks of one host disagree on the time", "By their stamps, ranks of one host left collectives before others had come, in more than 10 % of them. Each was given a clock of its own.", "Were traces edited, or recorded in containers with clocks of their own? Two hosts of one name look like this as well."),
    Diagnostic("HP142", "info", "Hosts are not named", "The traces do not say on which host they were recorded, so each rank counts as a clock of its own.", "Newer PyTorch and hpuprof's recorder write `host_name` into the file."),
    Diagnostic("HP143", "info", "Collectives with missing members", "Rows of some ranks were lost or lie outside their recordings. Such collectives do not count as waiting.", "Record whole steps on all ranks."),
    Diagnostic("HP144", "info", "Process groups are not named", "The traces do not say which ranks take part in a collective; all ranks were assumed to.", "Newer PyTorch writes the group with each collective."),
    Diagnostic("HP145", "warning", "The replay misses the recorded steps", "Replayed without changes, steps differ by more than 5 % from the recorded ones: what bounds them is not in the model.", "Step times without the straggler are withheld; waiting and blame remain."),
    Diagnostic("HP170", "warning", "Impossible process groups", "A collective names a group of more than 262,144 ranks, or a rank of ten digits or more. The ranks of such a group count as not told.", "Nothing to do if the file was damaged or edited; report the file if a profiler wrote it so."),
    Diagnostic("HP175", "info", "Modules nested very deep", "Calls of modules that lie inside 256 others. What they ran counts to the module around them at that depth.", "Nothing to do; a recursion without an end looks like this as well."),
    Diagnostic("HP180", "error", "A folder could not be searched", "It may not be listed, or the storage refused. The traces in it, and the ranks that they hold, are missing.", "Check who may read it; on a server, that it lists its folders.", lossy=True),
    Diagnostic("HP190", "info", "Launches matched by order", "The writer gives no correlation (Habana's do not). Launches and device rows were matched first in, first out: recipes, copies in, copies out and collectives each in a queue of their own, and a queue where that leaves many alone, or makes work wait beside an idle device, was left out. This decides the share of linked rows and what `hpuprof convert` draws; operators get no device time from it.", "Nothing to do."),
)  # fmt: skip

DIAGNOSTICS: dict[str, Diagnostic] = {d.code: d for d in _ALL}
