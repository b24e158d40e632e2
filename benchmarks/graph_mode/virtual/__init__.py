"""A virtual asynchronous device: real PyTorch host work against queues on the wall clock. See benchmarks/graph_mode/README.md."""
