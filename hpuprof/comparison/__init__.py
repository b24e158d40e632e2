"""Comparing two reports: `reports` does it, `result` is what comes out."""
