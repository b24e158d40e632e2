"""Cross-rank analysis: one clock, matched collectives, stragglers, process groups. Reads no files."""
