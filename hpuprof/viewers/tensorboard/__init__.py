"""Rewrites traces for the stock TensorBoard tab.

Nothing is lost: every source row stays, with all its members. Changed values are noted with the new ones, and reading
a converted trace gives the same result as reading its source (`hpuprof.ingest.restore`).
"""
