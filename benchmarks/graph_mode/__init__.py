"""How well the graph-mode verdict predicts: cases with known step times in every mode, and their scorer. See README.md here."""
