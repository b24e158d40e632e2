"""The native part, the only thing that pyproject.toml does not say: without a compiler everything else is installed.

It is compiled for the Python at hand: the limited API has the buffer protocol from 3.11 on only, and hpuprof runs on
3.10. `python setup.py build_ext --inplace` builds it into a checkout.
"""

from pathlib import Path

from setuptools import Extension, setup

LOOPS = ("host_work", "intervals", "longest_paths", "nesting", "pace", "play", "search", "sort_events", "steady")

setup(
    ext_modules=[
        Extension(
            "hpuprof._native",
            sources=[f"native/{name}.cpp" for name in (*LOOPS, "module", "row_scanner", "scanner")],
            depends=[str(path) for path in sorted(Path("native").glob("*.hpp"))],
            # numpy rounds after each operation, so the scanner must not fuse two of them
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=off"],
            language="c++",
            optional=True,
        )
    ]
)
