"""Describes a recording: versions, options, environment, device, unprofiled step times. Never secrets."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

from hpuprof._version import __version__

_TELLING = re.compile(
    r"^(?:PT_HPU_|PT_TB_|PT_PROFILER_|PT_PYTORCH_PROFILER_|HABANA_PROF|HLS_MODULE_ID$|HABANA_VISIBLE_"
    r"|QUANT_CONFIG$|(?:LOWER|FP32)_LIST$"
    r"|PYTORCH_(?:CUDA|HIP)_ALLOC_CONF$|CUDA_LAUNCH_BLOCKING$|CUDA_VISIBLE_DEVICES$"
    r"|NCCL_(?:ALGO|PROTO|P2P_DISABLE|IB_DISABLE|DEBUG)$|OMP_NUM_THREADS$|MKL_NUM_THREADS$|TORCH_COMPILE_DISABLE$)"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)
_MAX_VALUE = 200


@dataclass(frozen=True)
class Who:
    """Identity of a recording: part of the file's name and metadata."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    stage: str = ""
    action: str = ""
    framework: str = ""
    compiled: bool = False
    tuner: str = ""  # which of Lightning's tuners runs this loop: lr_find, batch_size

    def as_metadata(self) -> dict[str, Any]:
        """Return what identifies this process, as plain JSON values."""
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "host": host(),
            "pid": os.getpid(),
            "stage": self.stage,
            "action": self.action,
            "framework": self.framework,
            **({"tuner": self.tuner} if self.tuner else {}),
        }


def environment() -> dict[str, str]:
    """Return listed environment variables that affect how a step runs, except any that may hold a secret."""
    return {k: v[:_MAX_VALUE] for k, v in sorted(os.environ.items()) if _TELLING.match(k) and not _SECRET.search(k)}


def versions() -> dict[str, str]:
    """Return versions of the loaded packages, importing nothing."""
    found = {"hpuprof": __version__, "python": platform.python_version()}
    for name in ("torch", "lightning", "pytorch_lightning", "habana_frameworks.torch"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname() or "host"


def run_mode(device: str, *, compiled: bool) -> str | None:
    """Return how the model runs: lazy, eager or compile.

    None if Habana's default is unknown: lazy up to 1.20, eager since.
    """
    if compiled:
        return "compile"
    if device != "hpu":
        return "eager"
    asked = os.environ.get("PT_HPU_LAZY_MODE")
    if asked is not None:
        return "eager" if asked == "0" else "lazy"
    try:
        return "lazy" if sys.modules["habana_frameworks.torch.utils.internal"].is_lazy() else "eager"
    except (KeyError, AttributeError):
        return None


def unprofiled(blocks: list[tuple[int, int]]) -> dict[str, Any] | None:
    """Summarize timed blocks of (nanoseconds, steps): time per step, median and spread. None without blocks."""
    if not blocks:
        return None
    per_step = [ns // steps for ns, steps in blocks]
    middle = int(median(per_step))
    return {
        "step_ns": middle,
        "blocks_ns": per_step,
        "steps_per_block": [steps for _, steps in blocks],
        "spread_ns": max(per_step) - min(per_step),
        "method": "wall clock over blocks of steps without the profiler, "
        "the device synchronized at both ends of each block only",
    }
