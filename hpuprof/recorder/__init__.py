"""HPUProfiler for Lightning, `record` for plain loops. Imports torch and Lightning lazily, and no analysis."""
