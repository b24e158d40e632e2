"""Advice that names an interface, and code to type: what several families share. By code of a finding, or remedy."""

from __future__ import annotations

GRAPHS_AND_SERVERS = {
    "HP201": "Launch less: use larger batches, fused optimizers, torch.compile, or graph replay (HPU Graphs in "
    "lazy mode, CUDA graphs).",
    "HP201:serving": "Replay the forward pass as graphs (in a server, no enforce_eager, and capture sizes or Gaudi's "
    "buckets that cover the batches served), torch.compile the model, or use larger batches.",
    "HP202": "Use more data-loader workers, persistent_workers and prefetching; on Gaudi, the media data loader.",
    "HP205:serving": "Warm up every shape that is served (on Gaudi, buckets with VLLM_SKIP_WARMUP=false), and pad to "
    "them.",
    "HP218": "Unset PYTORCH_NO_CUDA_MEMORY_CACHING (on ROCm PYTORCH_NO_HIP_MEMORY_CACHING) and remove "
    "empty_cache() from the step. If the cache is on, "
    "memory is short or fragmented (`num_alloc_retries` of torch.cuda.memory_stats() grows): set "
    "PYTORCH_ALLOC_CONF=expandable_segments:True, keep shapes static, or use a smaller batch.",
    "allocations": "Keep the allocator's cache (no empty_cache(), no PYTORCH_NO_CUDA_MEMORY_CACHING), leave it room, "
    "or lower fragmentation.",
    "allocator_first": "unset PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NO_HIP_MEMORY_CACHING  # and no empty_cache() in "
    "the step",
    "late_rows": "torch.profiler with enable_cuda_sync_events",
    "lower_precision": "Run forward under autocast to bfloat16, parameters stay in fp32; float16 with a GradScaler "
    "where the device has no bfloat16 (NVIDIA's before the A100).",
}
NO_CACHE = {
    "cuda": "unset PYTORCH_NO_CUDA_MEMORY_CACHING\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "rocm": "unset PYTORCH_NO_HIP_MEMORY_CACHING PYTORCH_NO_CUDA_MEMORY_CACHING\n"
    "export PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
}
TF32 = 'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True'
BLOCKING = {"HP121": "`CUDA_LAUNCH_BLOCKING` makes launches block.", "HP151": "`torch.cuda.synchronize()` drains it."}
GAUDI_NOTES = {
    "HP190": "Habana's profilers write no correlation.",
    "HP105": "hardware tracing is off with `hl-prof-config --hw-trace off` and with `HABANA_PROFILE=0`.",
}


def code(device: str) -> dict[str, str]:
    """Return code to type for remedies on `torch.DEVICE`, which has streams."""
    return {
        "copies": f"""copying = torch.{device}.Stream()
with torch.{device}.stream(copying):  # before this batch is computed
    following = next(batches).to(device, non_blocking=True)
...
torch.{device}.current_stream().wait_stream(copying)  # before the next one is
following.record_stream(torch.{device}.current_stream())""",
        "lower_precision": autocast(device),
        "lower_precision:float16": f"""scaler = torch.amp.GradScaler("{device}")
with torch.autocast("{device}", dtype=torch.float16):
    loss = criterion(model(batch), target)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()""",
    }


def autocast(device: str) -> str:
    """Return code that runs forward in bfloat16."""
    return f'with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = criterion(model(batch), target)'


HPU_CODE = {
    "flushes": "loss.backward()\nhtcore.mark_step()\noptimizer.step()\nhtcore.mark_step()  # and nowhere else",
    "fused_optimizer": "from habana_frameworks.torch.hpex.optimizers import FusedAdamW\n"
    "FusedAdamW(model.parameters(), lr=lr)",
    "attention": "from habana_frameworks.torch.hpex.kernels import FusedSDPA\n"
    "out = FusedSDPA.apply(q, k, v, mask, dropout, is_causal)",
    "lower_precision": autocast("hpu"),
    "pointwise_fusion": 'model = torch.compile(model, backend="hpu_backend")',
    "fp8": "import habana_frameworks.torch.hpex.experimental.transformer_engine as te\n"
    "layer = te.Linear(in_features, out_features)  # in place of torch.nn.Linear\n"
    "with te.fp8_autocast(enabled=True):\n    loss = criterion(model(batch), target)",
}
