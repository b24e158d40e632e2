"""Rewrites traces for viewers that understand less than they could: the stock TensorBoard tab.

Nothing is lost: every row of the source stays, changed words are noted beside their new ones, and reading a converted trace
gives what reading its source gives (`hpuprof.ingest.restore`).
"""
