"""Timelines for viewers: merge traces into one, check what a viewer would lose, open one offline. Measures nothing."""
