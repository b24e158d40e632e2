"""What effort counts for in the plan's order: the weights that it has, or a power of them."""

from __future__ import annotations

import argparse

from hpuprof.planning.remedy import WEIGHT


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Add `--effort`, which `weigh` takes."""
    parser.add_argument(
        "--effort", type=float, default=1.0, help="power of the plan's weights: 0 for nothing, 2 for twice"
    )


def weigh(power: float) -> None:
    """Let effort count for a power of the plan's weights from now on, in this process."""
    for effort, weight in WEIGHT.items():
        WEIGHT[effort] = weight**power
