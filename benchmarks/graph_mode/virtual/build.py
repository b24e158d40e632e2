"""Compiles `native/device.cpp` once for this torch and keeps the library in the temporary directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
BUILD_SECONDS = 600


class CannotBuildError(RuntimeError):
    """No compiler, no Linux, or a torch without Kineto's headers; the message says which."""


def build(family: str = "cuda") -> Path:
    """Return the path of the compiled device, which looks like one of `family` (cuda or hpu). Raises CannotBuildError."""
    if not sys.platform.startswith("linux"):
        raise CannotBuildError("the virtual device is built on Linux only")
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if compiler is None:
        raise CannotBuildError("no C++ compiler: set CXX")
    try:
        import torch
        from torch.utils.cpp_extension import include_paths, library_paths
    except ModuleNotFoundError as error:
        raise CannotBuildError(f"{error.name} is not installed") from None
    includes = [Path(p) for p in include_paths()]
    if not any((p / "kineto" / "libkineto.h").is_file() for p in includes):
        raise CannotBuildError(f"torch {torch.__version__} comes without Kineto's headers")
    text = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))
    key = hashlib.sha256(text + f"{torch.__version__} {torch.__file__} {compiler} {family}".encode())
    folder = Path(tempfile.gettempdir()) / f"hpuprof-benchmarks-{os.getuid()}"
    target = folder / f"virtual_device-{key.hexdigest()[:16]}.so"
    if target.is_file():
        return target
    folder.mkdir(mode=0o700, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-w", "-DFMT_HEADER_ONLY=1"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [flag for p in includes for flag in ("-isystem", str(p), "-isystem", str(p / "kineto"))]
    command += ["-DVIRTUAL_HPU"] if family == "hpu" else []
    command += [str(SOURCES / "device.cpp"), "-o", str(part), "-ltorch_cpu", "-lc10"]
    command += [flag for p in library_paths() for flag in (f"-L{p}", f"-Wl,-rpath,{p}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        raise CannotBuildError(f"{compiler} failed:\n{done.stderr[-4000:]}")
    part.replace(target)
    return target
