"""An independent discrete-event generator of traces with truth: it shares no code with the analysis that is judged by it.

`make_case(seed)` returns a case in memory, `make_case(seed, clean=True)` one in which a right replay is exact;
`python -m benchmarks.graph_mode.des` writes many. What is simulated stands in README.md beside this file.
"""

from .case import FAMILIES, Case, make_case

__all__ = ["FAMILIES", "Case", "make_case"]
