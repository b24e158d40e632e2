"""The hpuprof tab of TensorBoard: our report of every run below the log directory, offline, while TensorBoard runs.

A front end like the command line: it finds runs, has them analyzed (`hpuprof.api`) and shows what `hpuprof.render`
writes. It touches neither the vendor's torch nor the stock profiler's plugin, and needs nothing but this package and
TensorBoard.
"""
