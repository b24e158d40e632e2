"""Files that are made when they are needed: each shape is harmless small and once cost more than its size when it grew.

`size` is chosen so that what grows with the square would pass `cpu_s` many times over, and what grows with the size
stays far below; `benchmarks/growth.py` doubles the sizes and prints the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One shape: how it is made and what each command may use for it."""

    name: str
    make: Callable[[int], bytes]
    size: int
    cpu_s: int
    memory_mib: int = 500
    commands: tuple[str, ...] = ("analyze",)
    exits: tuple[int, ...] = (0,)
    file_name: str = "rank0.pt.trace.json"


CASES: list[Case] = []


def grows(
    size: int,
    *,
    cpu_s: int,
    memory_mib: int = 500,
    commands: tuple[str, ...] = ("analyze",),
    exits: tuple[int, ...] = (0,),
    file_name: str = "rank0.pt.trace.json",
) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Add a shape to the corpus."""

    def add(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
        CASES.append(Case(make.__name__, make, size, cpu_s, memory_mib, commands, exits, file_name))
        return make

    return add


@grows(60_000, cpu_s=20, commands=("convert",))
def engine_overlaps(size: int) -> bytes:
    """Kernels of one engine that all overlap: each needs a track of its own in the tab."""
    head = '{"ph":"M","name":"process_name","pid":0,"tid":0,"ts":0,"args":{"name":"/device:HPU:0"}}'
    lane = '{"ph":"M","name":"thread_name","pid":0,"tid":7000,"ts":0,"args":{"name":"[HD0] TPC 0"}}'
    row = '{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7000,"ts":%d,"dur":1000000,"args":{"recipeId":7}}'
    return ('{"traceEvents":[' + ",\n".join([head, lane, *(row % (i, i) for i in range(size))]) + "]}").encode()
