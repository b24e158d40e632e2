"""Freed blocks between live ones go back to the system."""

import gc
import platform
import weakref
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from hpuprof import process_memory
from hpuprof.process_memory import return_memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide for themselves")
def test_freed_blocks_between_live_ones_go_back():
    blocks = [np.ones(1 << 13) for _ in range(1024)]
    del blocks[::2]
    before = resident_bytes()
    return_memory(1 << 10)
    assert resident_bytes() > before - (4 << 20), "little was freed: not worth a call"
    return_memory(64 << 20)
    assert resident_bytes() < before - (24 << 20)
    assert sum(block.sum() for block in blocks) == 512 * (1 << 13)


def test_what_a_large_file_left_in_cycles_goes_before_the_next_is_read(monkeypatch):
    """Where the command line looks for garbage rarely, a worker would hold the traces of several files."""

    class Left:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(process_memory, "_large_files", count())
    gc.disable()
    try:
        process_memory.forget_last(1 << 30)  # the first file: nothing was read before
        left = weakref.ref(Left())
        process_memory.forget_last(1 << 20)
        assert left() is not None, "small files do not pay for it"
        process_memory.forget_last(1 << 30)
        assert left() is None
    finally:
        gc.enable()
