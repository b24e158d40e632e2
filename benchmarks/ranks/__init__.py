"""Many ranks with known clocks and stragglers: a simulator, a writer of traces, and a score. Shares no code with hpuprof."""
