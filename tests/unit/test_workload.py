"""What the recorded program does, by its rows: training, serving, inference."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

import hpuprof


@pytest.mark.parametrize(
    ("cat", "name", "kind", "server"),
    [
        ("cpu_op", "autograd::engine::evaluate_function: MmBackward0", "training", ""),
        ("cpu_op", "aten::native_layer_norm_backward", "training", ""),
        ("user_annotation", "Optimizer.step#AdamW.step", "training", ""),
        ("python_function", "train.py(12): backward", "training", ""),
        ("user_annotation", "execute_context_1(512)_generation_3(3)", "serving", "vllm"),
        ("cpu_op", "vllm::unified_attention_with_output", "serving", "vllm"),
        ("cpu_op", "sgl_kernel::rmsnorm", "serving", "sglang"),
        ("cpu_op", "trtllm::fused_moe", "serving", "tensorrt_llm"),
        ("user_annotation", "decode", "serving", ""),
        ("user_annotation", "prefill bs=4", "serving", ""),
        ("cpu_op", "aten::conv_transpose2d", "inference", ""),
        ("cpu_op", "image::decode_jpeg", "inference", ""),
        ("user_annotation", "decoder layer", "inference", ""),
    ],
)
def test_a_row_tells_what_the_program_does(tmp_path, cat, name, kind, server):
    b = TraceBuilder().steps(4, 100).host("aten::mm", 10, 20).host(name, 40, 20, cat=cat)
    (file,) = hpuprof.analyze(b.write(tmp_path / "t.json")).data.files
    assert (file.workload, file.server) == (kind, server)


@pytest.mark.parametrize(("cat", "name"), [("cuda_runtime", "cudaLaunchKernel"), ("cpu_op", "aten::zeros")])
def test_without_operators_of_a_model_nothing_is_told(tmp_path, cat, name):
    b = TraceBuilder().steps(4, 100).host(name, 10, 5, cat=cat).kernel("gemm", 20, 40)
    assert hpuprof.analyze(b.write(tmp_path / "t.json")).data.files[0].workload == ""
