"""What only several ranks together can tell: one clock, matched collectives, stragglers, process groups. Reads no files."""
