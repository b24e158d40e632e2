"""A stand-in for Habana's bridge, for tests: the seams of release 1.19 that a recorder meets, with a device that computes nothing."""
