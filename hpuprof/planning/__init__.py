"""What to change first: remedies as edits of one schedule, estimated together."""
