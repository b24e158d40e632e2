"""The report: combining reduced ranks, findings, and the frozen result that every renderer and user reads."""
