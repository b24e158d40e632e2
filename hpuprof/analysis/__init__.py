"""Pure functions from a trace to numbers: no files, no printing, no vendor-specific names."""
