"""Comparing two reports: `reports` does it, `model` is what comes out."""
