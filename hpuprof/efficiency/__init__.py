"""FLOPs and bytes of operators from their recorded shapes, peaks of devices, and what share of a peak was reached."""
