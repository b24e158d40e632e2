"""Deterministic generator of large, real-shaped profiler traces; used only by the benchmarks."""
