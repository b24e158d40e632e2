"""The seam from the recorder to `hpuprof.viewers.tensorboard`: recorded traces show the device in the stock TensorBoard tab as they are.

A trace that cannot be rewritten is kept as the profiler wrote it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from hpuprof.recorder.warn import tell

LIMIT_BYTES = 128 << 20
"""Larger exports stay as they are: rewriting takes about a second for each 20 MB while training waits, and the tab fails on them."""


def rewritten(plain: Path, final: Path) -> Path | None:
    """Rewrite a complete, uncompressed trace; return the file to put in place of `final` (`.gz` compresses), None to keep `plain`."""
    if plain.stat().st_size > LIMIT_BYTES:
        return None
    from hpuprof.viewers.tensorboard.convert_file import PART, convert_file

    try:
        convert_file(plain, final, {})
    except Exception as error:  # noqa: BLE001  a recording must not be lost to a viewer's needs
        with contextlib.suppress(OSError):
            final.with_name(final.name + PART).unlink()
        tell(
            f"{final.name} is kept as torch wrote it, TensorBoard's own tab may not show the device: {type(error).__name__}: {error}",
            RuntimeWarning,
        )
        return None
    return final.with_name(final.name + PART)
