"""Freed blocks between live ones go back to the system."""

import platform
from pathlib import Path

import numpy as np
import pytest

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
