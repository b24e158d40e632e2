"""What `cuda_truth.py` measures: models in plain torch, training steps, graph modes."""
