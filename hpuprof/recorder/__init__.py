"""The recorder: HPUProfiler for Lightning, `record` for plain loops. Imports torch and Lightning on use, nothing of analysis."""
