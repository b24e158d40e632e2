"""Codes for what a trace does not show and what was lost while reading. HP101 to HP176, HP190, HP191."""

from __future__ import annotations

from hpuprof.diagnostics.diagnostic import Diagnostic

OF_READING = (
    Diagnostic(
        code="HP101",
        severity="warning",
        title="The file is cut short",
        cause="The writer was killed, the disk was full, or the copy is incomplete. Every whole row before the cut was "
        "read.",
        remedy="Record again, or copy the file again; the numbers cover the rows before the cut.",
        lossy=True,
    ),
    Diagnostic(
        code="HP102",
        severity="warning",
        title="Rows were lost",
        cause="Parts of the file are not valid JSON and could not be repaired; two ranks that write to one file cause "
        "this.",
        remedy="Give every rank its own file; report the file if only one process wrote it.",
        lossy=True,
    ),
    Diagnostic(
        code="HP103",
        severity="info",
        title="Rows were repaired",
        cause="They held raw control characters, bad UTF-8, NaN, or stray quotes or backslashes in names (writers of "
        "traces sometimes leave these). Plain fields were kept; arguments may be missing.",
        remedy="Nothing to do; newer PyTorch escapes its names.",
    ),
    Diagnostic(
        code="HP104",
        severity="info",
        title="Unknown rows",
        cause="Their category is new to hpuprof. They are counted, and excluded from every number.",
        remedy="`hpuprof inspect` lists them by category and thread; please report them.",
    ),
    Diagnostic(
        code="HP105",
        severity="warning",
        title="The device was not traced",
        cause="The file holds no device rows: the profiler ran without the device activity, or hardware tracing was "
        "off. The device was not necessarily idle.",
        remedy="Record with the device activity, and with hardware tracing on where it is an option of its own.",
    ),
    Diagnostic(
        code="HP106",
        severity="warning",
        title="Few steps or launches have device rows",
        cause="The device buffer overflowed, tracing began late, or it ended while the device was behind; idle time "
        "computed from such a trace is wrong.",
        remedy="Record fewer steps, or enlarge the buffer; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP107",
        severity="warning",
        title="One row holds most of the device time",
        cause="Its duration is damaged, or it is a graph replay recorded as one row.",
        remedy="Check the row; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP108",
        severity="warning",
        title="Graph replays are under-recorded",
        cause="More than half of the graph launches show none of their kernels, or few of those that other launches of "
        "the same graph show; the missing kernels would read as idle time.",
        remedy="Record without graphs, or with a newer driver; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP153",
        severity="warning",
        title="The host waits for a device without work",
        cause="A wait for the device or a stream returns when its last row is over. Here it goes on behind launches "
        "while the device shows no row: rows are lost, most often of graph replays, and would read as idle time.",
        remedy="Record without graphs, or with a newer driver; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP154",
        severity="warning",
        title="Some launches have no device rows",
        cause="The device buffer overflowed, tracing began late, or it ended while the device was behind. Steps in "
        "which rows are missing are left out where others are whole; else idle time may hold the missing rows.",
        remedy="Record fewer steps, or enlarge the buffer.",
    ),
    Diagnostic(
        code="HP155",
        severity="warning",
        title="Device rows stand twice",
        cause="Two device rows have one launch, name, lane and time, and a lane runs a row once: the file was merged "
        "with itself, or its writer repeats rows. The copies are left out.",
        remedy="Nothing; write the file anew if other tools read it, too.",
    ),
    Diagnostic(
        code="HP156",
        severity="warning",
        title="Device rows of one stream overlap",
        cause="A stream runs one row after the other. Rows that overlap for more than 1 % of their time carry other "
        "times than the device's, such as those of their launches.",
        remedy="Record with the device's own activity; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP157",
        severity="info",
        title="Ranks began to record at different times",
        cause="The first collective lasts more than 20 times as long as any other of its name: it waited for ranks "
        "that began later. Steps in which it ran are left out.",
        remedy="Nothing to do; that wait says nothing about the network.",
    ),
    Diagnostic(
        code="HP158",
        severity="warning",
        title="Device rows come behind the steps",
        cause="What two or more steps launched shows up behind the last one, though the device idled: a buffer was "
        "written late, and its rows carry the times of the writing.",
        remedy="Record without graphs, or with a newer driver; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP159",
        severity="warning",
        title="The program did nothing",
        cause="Operators and device fill less than 1 % of the recording, and nothing in it repeats: it lies in the "
        "program's beginning, its end, or a pause.",
        remedy="Record while steps run.",
    ),
    Diagnostic(
        code="HP164",
        severity="info",
        title="The recording ends with a wait of the profiler",
        cause="The last call waits for a device that has nothing left to do. A program's wait would have returned, so "
        "the rest is the profiler's, which collects its rows.",
        remedy="Nothing to do; that time is in no step.",
    ),
    Diagnostic(
        code="HP165",
        severity="info",
        title="The profiler pauses the program",
        cause="A call of the program waits while the profiler takes memory for its rows. Steps that wait for more than "
        "2 % of their time are left out where others do not.",
        remedy="Give the profiler larger buffers, or record fewer rows (without stacks and shapes).",
    ),
    Diagnostic(
        code="HP109",
        severity="info",
        title="Steps were inferred",
        cause="The trace has no step markers; steps come from a repeating annotation, from the period of the operator "
        "sequence, or the recording counts as one pass.",
        remedy="Call `profiler.step()` once per batch, or use HPUProfiler.",
    ),
    Diagnostic(
        code="HP110",
        severity="info",
        title="Few steps",
        cause="Fewer than three steps enter the medians, too few to judge spread and outliers.",
        remedy="Record at least five steps.",
    ),
    Diagnostic(
        code="HP111",
        severity="info",
        title="Rows without a beginning or an end",
        cause="The recording window cut them: a begin without an end, an end without a begin, or a row without a "
        "duration. They were excluded.",
        remedy="Nothing to do at the borders of a recording; many of them inside it point to a damaged file.",
    ),
    Diagnostic(
        code="HP112",
        severity="warning",
        title="Rows with impossible times",
        cause="Negative durations, durations or distances of more than a day, no time stamp, or (when merging) a phase "
        "that is not a letter. They were excluded.",
        remedy="These are known profiler bugs; update PyTorch or the device's profiler.",
        lossy=True,
    ),
    Diagnostic(
        code="HP113",
        severity="warning",
        title="Ranks were guessed",
        cause="Neither the files nor their names give a rank, so ranks were numbered in order of the names.",
        remedy="Use `--rank-from`, or names such as `host_0.<time>.pt.trace.json`.",
    ),
    Diagnostic(
        code="HP114",
        severity="error",
        title="A file could not be analyzed",
        cause="Not a trace file, nothing in it could be read, or there was not enough memory. The other files were "
        "analyzed.",
        remedy="Remove it or copy it again; where memory ran out, use fewer workers (`--jobs 1`) or record fewer "
        "steps.",
        lossy=True,
    ),
    Diagnostic(
        code="HP115",
        severity="info",
        title="Operators outlive their parent",
        cause="Rows on one thread overlap without nesting; for self times they were cut at the parent's end.",
        remedy="Nothing to do.",
    ),
    Diagnostic(
        code="HP116",
        severity="info",
        title="Device rows without a launch",
        cause="The launch lies outside the recording, or the writer gives no correlation and the order does not "
        "identify it (HP190). Such rows count as device work but belong to no operator.",
        remedy="Nothing to do; starting the recording a step earlier reduces their number.",
    ),
    Diagnostic(
        code="HP117",
        severity="info",
        title="Several devices in one process",
        cause="Rows of all devices count together: busy means that at least one device was busy.",
        remedy="Give each device its own process to separate them.",
    ),
    Diagnostic(
        code="HP118",
        severity="warning",
        title="Ranks are missing",
        cause="The traces name more ranks than there are files.",
        remedy="Collect the traces of all ranks.",
    ),
    Diagnostic(
        code="HP119",
        severity="warning",
        title="Compression is damaged",
        cause="The gzip stream is damaged or ends early. The part before was read.",
        remedy="Copy the file again.",
        lossy=True,
    ),
    Diagnostic(
        code="HP120",
        severity="info",
        title="A file was skipped",
        cause="It holds no trace events, or is a file of another profiler that is not read; the message says which.",
        remedy="Nothing to do where no trace is missing. Rows that only such a file has are in no answer.",
    ),
    Diagnostic(
        code="HP121",
        severity="warning",
        title="The device was profiled synchronously",
        cause="Every launch call outlives the device row that it launched: launches were set to block, or the "
        "profiler drains the device. The measurement destroyed the overlap of host and device.",
        remedy="Record without forced synchronization to see the real overlap of host and device.",
    ),
    Diagnostic(
        code="HP122",
        severity="info",
        title="Profiling slows steps down",
        cause="The trace does not hold the step time without the profiler; on the host, recorded steps typically take "
        "1.4 to 3.6 times as long.",
        remedy="Record with HPUProfiler, which first times steps without the profiler.",
    ),
    Diagnostic(
        code="HP123",
        severity="info",
        title="A table was cut",
        cause="Only the largest rows of it (operators, kernels, recipes, modules, scopes, shapes, obstacles) are kept.",
        remedy="Nothing to do; totals cover all rows.",
    ),
    Diagnostic(
        code="HP124",
        severity="info",
        title="No step is typical",
        cause="All steps compile, warm up or lie at a border, so the numbers come from untypical steps.",
        remedy="Record more steps after warm-up.",
    ),
    Diagnostic(
        code="HP125",
        severity="info",
        title="Recordings differ in kind",
        cause="The files belong to different stages or actions; the answer covers one of them.",
        remedy="See the table of files; analyze the others separately.",
    ),
    Diagnostic(
        code="HP126",
        severity="warning",
        title="The host was not traced",
        cause="The file holds only device rows, as the hardware profiler writes them. Engine times are right; the "
        "causes of idle time are unknown.",
        remedy="Record with PyTorch's profiler to see host and device together.",
    ),
    Diagnostic(
        code="HP127",
        severity="warning",
        title="Several runs in one directory",
        cause="Files of one rank come from other processes, or repeat its steps or a window, or ranks recorded at "
        "different times: several runs used one directory. The answer is of the newest run that has all its ranks.",
        remedy="Analyze another run with `--run N`, 1 for the oldest, or give each run its own directory.",
    ),
    Diagnostic(
        code="HP166",
        severity="warning",
        title="Device rows have no length",
        cause="Other rows of the same names take several microseconds. At their median, those without a length would "
        "take more than 5 % of the device's time, which reads as idle time.",
        remedy="Record again, or with another version of the profiler; conclusions about the device are withheld.",
    ),
    Diagnostic(
        code="HP171",
        severity="warning",
        title="Several writers wrote one file",
        cause="The text of another trace begins amid or behind the rows: ranks or runs wrote to one file. Rows are "
        "read where they are whole, and may be of either.",
        remedy="Give every rank its own file (`worker_name`); what this one holds is no one rank's.",
    ),
    Diagnostic(
        code="HP172",
        severity="info",
        title="Operators' numbers contradict the times",
        cause="`External id` of a call is an operator's that does not run around it: the profiler counted operators "
        "and calls apart. Calls belong to the operator that runs around them, so no number depends on it.",
        remedy="Nothing to do; tools that join by these numbers give the device's time to other operators.",
    ),
    Diagnostic(
        code="HP150",
        severity="warning",
        title="Device work lies in no step",
        cause="More than a tenth of the device's busy time lies outside of all steps: evaluation or set-up between "
        "them, or steps that were not recognized. No number of a step covers it.",
        remedy="Mark the steps (`prof.step()`), or record with HPUProfiler; `device_outside_fraction` is the share.",
    ),
    Diagnostic(
        code="HP151",
        severity="warning",
        title="The recording begins in the middle of the device's work",
        cause="For a quarter of the used steps or more the device worked on what was launched before the recording, "
        "which has no rows. It only seems idle, and nothing says what bounds the step.",
        remedy="Record more steps, from an idle device: synchronize it before the profiler starts.",
    ),
    Diagnostic(
        code="HP152",
        severity="info",
        title="The host runs ahead of the device",
        cause="It enqueues the next step before the device has completed one. How long the host is in a step is then "
        "not how long a step takes.",
        remedy="Nothing to do: step times and device numbers are taken from completion to completion "
        "(`host_step_time_p50`: the host's own).",
    ),
    Diagnostic(
        code="HP160",
        severity="info",
        title="Long tables cover only some ranks",
        cause="With this many ranks, a table would exceed its limit (`--table-rows`, 20,000 rows). The lowest rank "
        "comes first, then the ranks with the most work of their own in a step (wall time less exposed "
        "communication), for which the others wait; for memory curves, the ranks with the largest peaks. Medians, "
        "findings, and the tables of files and ranks cover every rank.",
        remedy="Analyze a rank's files alone to see its rows, or raise `--table-rows` (0: no limit).",
    ),
    Diagnostic(
        code="HP161",
        severity="warning",
        title="A file changed while it was read",
        cause="It was still being written: it was read several times and changed each time, so the numbers may mix "
        "states of it.",
        remedy="Analyze it once its writer is done.",
        lossy=True,
    ),
    Diagnostic(
        code="HP162",
        severity="info",
        title="Work was repeated",
        cause="A worker died, or the scheduler went away. The unfinished work was repeated by other workers or on this "
        "machine; the numbers are complete.",
        remedy="If it happens again, use fewer jobs (`--jobs`) or more memory per worker.",
    ),
    Diagnostic(
        code="HP163",
        severity="info",
        title="Graph mode is predicted for a sample of the ranks",
        cause="Of more than 64 ranks, 64 spread over the job are predicted: the others do the same work, and "
        "predicting takes about half of the time of a rank. To find who holds the others back, all are replayed.",
        remedy="Analyze fewer ranks at once to predict each of them.",
    ),
    Diagnostic(
        code="HP128",
        severity="warning",
        title="Clocks of ranks are unrelated",
        cause="The stamps of the ranks lie more than a day apart: the ranks were recorded at different times, or count "
        "from different origins. The order of events across ranks is unknown.",
        remedy="Merge traces of one recording, or give known offsets with `hpuprof merge --clock manifest`.",
    ),
    Diagnostic(
        code="HP129",
        severity="warning",
        title="Recordings differ in their typical steps",
        cause="The kind of step that holds most of the time is not the same in every recording (on every rank, in "
        "every window of one), so medians over them mix kinds. Whether graph mode helps is answered for the kind of "
        "the first.",
        remedy="Compare recordings of one kind of step: the table step_kinds lists the kinds of each. A window that "
        "was cut short may be left out.",
    ),
    Diagnostic(
        code="HP130",
        severity="info",
        title="The device's clock was behind",
        cause="Device rows begin before the calls that launched them, by less than a millisecond. All rows of that "
        "device count as so much later, so that no row begins before its launch.",
        remedy="Nothing to do; pauses shorter than this are uncertain.",
    ),
    Diagnostic(
        code="HP140",
        severity="warning",
        title="Clocks of some hosts are unrelated",
        cause="No collective with ranks on both hosts was matched, or the manifest does not name them. No comparison "
        "of such ranks is computed.",
        remedy="Record a window with collectives of all ranks, or give `--clock manifest:FILE`.",
    ),
    Diagnostic(
        code="HP141",
        severity="warning",
        title="Ranks of one host disagree about time",
        cause="By their stamps, ranks of one host left more than 10 % of the collectives before others had arrived. "
        "Each rank was given its own clock.",
        remedy="Check whether traces were edited or recorded in containers with their own clocks; two hosts of one "
        "name also cause this.",
    ),
    Diagnostic(
        code="HP142",
        severity="info",
        title="Hosts are not named",
        cause="The traces do not name the host that they were recorded on, so each rank gets its own clock.",
        remedy="Newer PyTorch and hpuprof's recorder write `host_name` into the file.",
    ),
    Diagnostic(
        code="HP143",
        severity="info",
        title="Collectives with missing members",
        cause="Rows of some ranks were lost or lie outside their recordings. Such collectives do not count toward "
        "waiting. Where more than 0.1 % lack members, what a suspect costs is not said.",
        remedy="Record whole steps on all ranks.",
    ),
    Diagnostic(
        code="HP144",
        severity="info",
        title="Process groups are not named",
        cause="The traces do not say which ranks take part in a collective; all ranks are assumed.",
        remedy="Newer PyTorch writes the group with each collective.",
    ),
    Diagnostic(
        code="HP145",
        severity="warning",
        title="The replay misses the recorded steps",
        cause="Replayed unchanged, steps differ by more than 5 % from the recorded ones: the model lacks what limits "
        "them.",
        remedy="Step times without the straggler are withheld; waiting and blame remain valid.",
    ),
    Diagnostic(
        code="HP146",
        severity="info",
        title="Hosts set the pace of all ranks",
        cause="Even ranks whose hosts took no time would save more than 20 % of a step: devices wait for launches, and "
        "ranks come late by chance. What a rank costs is not said.",
        remedy="Launch less (graphs, fused operators, larger batches), then compare ranks again.",
    ),
    Diagnostic(
        code="HP147",
        severity="warning",
        title="Fewer than half of the ranks are traced",
        cause="Whoever holds the job back may be missing, so no rank is named, and waiting for other ranks is unknown.",
        remedy="Give the traces of all ranks, or of one of each host, stage and group.",
    ),
    Diagnostic(
        code="HP170",
        severity="warning",
        title="Impossible process groups",
        cause="A collective names a group of more than 262,144 ranks, or a rank of ten digits or more. The ranks of "
        "such a group count as unknown.",
        remedy="Nothing to do if the file was damaged or edited; report it if a profiler wrote it so.",
    ),
    Diagnostic(
        code="HP175",
        severity="info",
        title="Modules are nested very deeply",
        cause="Module calls lie inside 256 others. Their work counts toward the enclosing module at that depth.",
        remedy="Nothing to do; unbounded recursion also causes this.",
    ),
    Diagnostic(
        code="HP176",
        severity="info",
        title="Not all of what sets the step time was computed",
        cause="The slack of parts is computed where at most 128 host threads and streams wait for each other. Where "
        "the steps reach no steady state within 100 runs, or the critical cycle goes through more than 32 of them, the "
        "tables of what sets the step time are empty.",
        remedy="Nothing to do; the other numbers do not depend on it.",
    ),
    Diagnostic(
        code="HP190",
        severity="info",
        title="Launches matched by order",
        cause="The writer gives no correlation. Launches and device rows were matched "
        "first in, first out, in separate queues for recipes, copies in, copies out and collectives. A wait for the "
        "device or a stream shows how much of the work was launched before the recording. A queue was excluded where "
        "this leaves many rows unmatched. Launches of one recipe are numbered from the first as well. Launches may be "
        "others where much of a queue's work waits while the device is idle, and where nothing shows whether the "
        "recording cut off work at both ends; how many rows that concerns stands here, and how many "
        "launches have no work: of a single pass, nothing else shows that rows are missing, nor which. Device time of "
        "operators, idle causes and predictions rest on it.",
        remedy="Nothing to do.",
    ),
    Diagnostic(
        code="HP191",
        severity="warning",
        title="Operators faster than the device",
        cause="A formula, a published peak, a clock or a link between operators and device rows is wrong: no operator "
        "passes the peak. What these reached is unknown.",
        remedy="Compare `hpuprof export --table utilisation` with the device's data sheet, and report the difference.",
    ),
)
