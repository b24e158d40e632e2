"""Bytes of operators that compute little, by hand, and their share of the bandwidth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builder import TraceBuilder

from hpuprof.efficiency.traffic import traffic

K = 1024


@pytest.mark.parametrize(
    ("name", "shapes", "types", "moved"),
    [
        ("aten::relu", [[4, K]], ["float"], 2 * 4 * K * 4),
        ("aten::add", [[4, K], [K], []], ["c10::BFloat16", "c10::BFloat16", "Scalar"], (4 * K + K + 4 * K) * 2),
        ("aten::mul", [[4, 1], [1, K]], ["float", "c10::Half"], 4 * 4 + K * 2 + 4 * K * 4),
        ("aten::add_", [[K], [K], []], ["float", "float", "Scalar"], 3 * K * 4),
        ("aten::gelu_backward", [[K], [K], []], ["float", "float", ""], 3 * K * 4),
        ("aten::_softmax", [[2, K], [], []], ["c10::Half", "Scalar", "Scalar"], 2 * 2 * K * 2),
        (
            "aten::native_layer_norm",
            [[8, K], [], [K], [K], []],
            ["float", "ScalarList", "float", "float", "Scalar"],
            (2 * 8 * K + 2 * K) * 4,
        ),
        ("aten::index_select", [[30_000, K], [], [16]], ["float", "Scalar", "long"], 16 * 8 + 2 * 16 * K * 4),
        ("aten::copy_", [[K], [K], []], ["c10::Half", "float", "Scalar"], K * (2 + 4)),
        ("aten::sum", [[K, K], [], [], []], ["float", "ScalarList", "Scalar", ""], K * K * 4),
        ("aten::relu", [[4, K]], ["c10::complex<float>"], None),
        ("aten::copy_", [[K], []], ["float", ""], None),
        ("aten::_fused_adamw_", [[[K], [K]]], ["TensorList"], None),
    ],
)
def test_each_tensor_is_read_once_and_the_result_written_once(name, shapes, types, moved):
    work = traffic(name, json.dumps(shapes), json.dumps(types).encode(), b"")
    assert (work.bytes if work else None) == moved
    assert work is None or work.flops == 0


@pytest.mark.parametrize(("device", "share"), [("NVIDIA H100 80GB HBM3", 0.5), ("unheard of", None)])
def test_the_share_of_the_bandwidth(device: str, share: float | None, tmp_path: Path) -> None:
    header: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": device}]}
    built = TraceBuilder(**header).steps(4, 100)
    shape = [[1000, 1675]]  # 2 x 6.7 MB take 4 us at 3.35 TB/s
    for at in range(0, 400, 100):
        built.host("aten::sigmoid", at + 10, 8, **{"Input Dims": shape, "Input type": ["float"]})
        built.kernel("sigmoid_kernel", at + 30, 8, launch=at + 13)
        built.host("aten::sigmoid", at + 50, 8, **{"Input Dims": [[1, 1]], "Input type": ["float"]})  # launches nothing
    (row,) = built.reduce(tmp_path).utilisation
    assert (row.name, row.flops, row.bytes, row.count_per_step) == ("aten::sigmoid", 0, 2 * 6_700_000, 1)
    assert row.device_per_step_ns == 8_000
    assert row.roofline_fraction == (None if share is None else pytest.approx(share))
    assert row.bound == (None if share is None else "memory")
    assert row.flops_per_second is None
