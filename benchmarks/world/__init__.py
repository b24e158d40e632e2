"""One simulated world."""
