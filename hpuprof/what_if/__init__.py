"""What a change would give: the schedule of a run of steps, edits of it, and one engine that gives the step time."""
