"""Pure functions from a trace to numbers. Reads no files, prints nothing, knows no device vendor's words."""
