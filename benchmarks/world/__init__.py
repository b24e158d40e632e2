"""One simulated world: programs on hosts, devices and ranks in true time, what a profiler sees of them, what edits of them give.

It tells the truth that answers are judged by, so it shares no code with hpuprof. What is simulated stands in benchmarks/README.md.
"""
