"""How right prices are on programs that are really changed and run: on the virtual device, over gloo, on a CUDA GPU."""
