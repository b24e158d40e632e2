"""Write the generated sample traces: a small simulation of training on a Gaudi, with its expected numbers.

Nothing here imports ``hpuprof``: the expected numbers come from the simulation's own schedule, so they can
test the analyser. Only the standard library is used, and the same seed gives byte-identical files.
"""
