"""Runs whole tools on whole files and measures them; used only by the benchmarks."""
