"""The bridge's PyTorch package; the work happens in `core`."""

__version__ = "1.19.0.stub"
