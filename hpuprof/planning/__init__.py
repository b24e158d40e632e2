"""What to change first: remedies as edits of one schedule, priced together."""
