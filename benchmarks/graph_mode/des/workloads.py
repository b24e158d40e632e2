"""Random training steps: a model of a few modules, its backward pass, an optimizer, inputs, a read-back, collectives, side streams."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from .program import AUTOGRAD, COMM, COMPUTE, MAIN, SIDE, Builder, Step

NET, ENCODER = "Net_0", "Encoder_0"
SYNCS = ("none", "each-step", "every-5", "every-10", "mid-step")


@dataclass(frozen=True)
class Shape:
    """What kind of step to draw. Times in nanoseconds; `op_host_ns` is a typical operator's host time, launch call included."""

    blocks: int = 4
    op_host_ns: int = 14_000
    kernel_ns: int = 6_000
    sync: str = "none"
    buckets: int = 0  # gradient buckets: collectives on a stream of their own
    side: bool = False  # one branch of every block runs on a side stream
    inputs_on_device: bool = False
    loader_ns: int = 60_000
    tail_ns: int = 40_000
    foreach: bool = True
    stacks: bool = True  # rows that name modules
    launch_ns: int = 4_000


@dataclass(frozen=True)
class _Kind:
    """An operator: its rows from outer to inner, its kernels' weight, its backward node and that node's operators."""

    rows: tuple[str, ...]
    kernel: str
    weight: float
    node: str
    backward: tuple[tuple[str, str, float], ...]
    dims: tuple[tuple[int, ...], ...]


_LINEAR = _Kind(
    ("aten::linear", "aten::addmm"), "sm90_xmma_gemm_bf16_128x128_tn", 2.2, "AddmmBackward0",
    (("aten::mm", "sm90_xmma_gemm_bf16_128x64_nn", 2.2), ("aten::mm", "sm90_xmma_gemm_bf16_128x64_nt", 2.2),
     ("aten::sum", "void at::native::reduce_kernel<512, 1>", 0.6)), ((64, 512), (512, 512), (512,)),
)  # fmt: skip
_NORM = _Kind(
    ("aten::layer_norm", "aten::native_layer_norm"), "void at::native::vectorized_layer_norm_kernel", 0.8,
    "NativeLayerNormBackward0",
    (("aten::native_layer_norm_backward", "void at::native::layer_norm_grad_input_kernel", 1.1),), ((64, 512), (512,), (512,)),
)  # fmt: skip
_GELU = _Kind(
    ("aten::gelu",), "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernel>", 0.5, "GeluBackward0",
    (("aten::gelu_backward", "void at::native::vectorized_elementwise_kernel<4, GeluBackwardCUDAKernel>", 0.6),), ((64, 512),),
)  # fmt: skip
_ADD = _Kind(
    ("aten::add",), "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>", 0.5, "AddBackward0", (),
    ((64, 512), (64, 512)),
)  # fmt: skip
_ATTENTION = _Kind(
    ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"), "flash_fwd_kernel", 3.0,
    "ScaledDotProductFlashAttentionBackward0",
    (("aten::_scaled_dot_product_flash_attention_backward", "flash_bwd_kernel", 5.0),), ((8, 8, 64, 64),) * 3,
)  # fmt: skip
_CONV = _Kind(
    ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution"), "sm90_xmma_fprop_implicit_gemm", 2.6,
    "ConvolutionBackward0",
    (("aten::convolution_backward", "sm90_xmma_dgrad_implicit_gemm", 2.6), ("aten::convolution_backward", "sm90_xmma_wgrad_implicit_gemm", 2.8)),
    ((16, 64, 32, 32), (64, 64, 3, 3)),
)  # fmt: skip
_RELU = _Kind(
    ("aten::relu", "aten::clamp_min"), "void at::native::vectorized_elementwise_kernel<4, clamp_min>", 0.4, "ReluBackward0",
    (("aten::threshold_backward", "void at::native::vectorized_elementwise_kernel<4, threshold>", 0.5),), ((16, 64, 32, 32),),
)  # fmt: skip
_BLOCKS = {
    "transformer": (("LayerNorm", _NORM), ("Linear", _LINEAR), ("Attention", _ATTENTION), ("Linear", _LINEAR), ("", _ADD),
                    ("LayerNorm", _NORM), ("Linear", _LINEAR), ("GELU", _GELU), ("Linear", _LINEAR), ("", _ADD)),
    "convolutional": (("Conv2d", _CONV), ("ReLU", _RELU), ("Conv2d", _CONV), ("", _ADD), ("ReLU", _RELU)),
    "mlp": (("Linear", _LINEAR), ("GELU", _GELU)),
}  # fmt: skip
BLOCKS = tuple(_BLOCKS)


def build(shape: Shape, block: str, seed: str) -> Step:
    """Return a step of `shape` whose blocks are of kind `block`; the same seed gives the same step."""
    return _Writer(shape, block, random.Random(seed)).step()


class _Writer:
    def __init__(self, shape: Shape, block: str, rng: random.Random) -> None:
        self.shape, self.rng, self.out = shape, rng, Builder()
        self.block = _BLOCKS[block]
        self._names: dict[str, int] = {}
        self._backward: list[tuple[tuple[str, ...], _Kind, int, tuple[int, ...]]] = []
        self._parameters = 0

    def step(self) -> Step:
        shape, out = self.shape, self.out
        inputs = self.rng.randint(1, 3)
        with (
            out.phase("data"),
            out.row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"),
        ):
            out.host(shape.loader_ns)
        with out.phase("input"):
            for _ in range(0 if shape.inputs_on_device else inputs):
                self._upload()
        with out.phase("zero_grad"), out.row("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation"):
            out.host(self._about(8_000))
        with out.phase("forward"):
            self._forward()
        with out.phase("loss"):
            self._operator((), _RELU, "aten::cross_entropy_loss")
        if shape.sync == "mid-step":
            with out.phase("sync"):
                self._read_back()
        with out.phase("backward"):
            self._run_backward()
        with out.phase("optimizer"), out.row("Optimizer.step#AdamW.step", "user_annotation"):
            self._optimizer()
        every = {"each-step": 1, "every-2": 2, "every-4": 4, "every-5": 5, "every-10": 10}.get(shape.sync, 0)
        if every:
            with out.phase("sync", every=every):
                self._read_back()
        with out.phase("tail"):
            out.host(shape.tail_ns)
        modules = (NET, ENCODER)
        return Step(tuple(out.instrs), inputs if shape.inputs_on_device else 0, {NET: inputs, ENCODER: 1}, modules)

    # ------------------------------------------------------------------------------------------------------ pieces

    def _forward(self) -> None:
        with self._module((), "Net") as net:
            with self._module(net, "Stem") as stem:
                self._operator(stem, _LINEAR)
            with self._module(net, "Encoder") as encoder:
                for _ in range(self.shape.blocks):
                    with self._module(encoder, "Block") as block:
                        self._block(block)
            with self._module(net, "Head") as head:
                self._operator(head, _NORM)
                self._operator(head, _LINEAR)

    def _block(self, path: tuple[str, ...]) -> None:
        side_from = len(self.block) // 2 if self.shape.side and len(self.block) > 2 else None
        for position, (name, kind) in enumerate(self.block):
            beside = side_from is not None and position == side_from
            if beside:
                with self.out.inside(path):
                    self.out.order(COMPUTE, SIDE, 1800)
            stream = SIDE if beside else COMPUTE
            if name:
                with self._module(path, name) as inner:
                    self._operator(inner, kind, stream=stream)
            else:
                if side_from is not None and position > side_from and stream == COMPUTE and kind is _ADD:
                    with self.out.inside(path):
                        self.out.order(SIDE, COMPUTE, 1800)
                    side_from = None
                self._operator(path, kind, stream=stream)
        if side_from is not None:
            with self.out.inside(path):
                self.out.order(SIDE, COMPUTE, 1800)

    def _operator(self, path: tuple[str, ...], kind: _Kind, name: str = "", stream: int = COMPUTE) -> None:
        """One forward operator: its nested rows, host work and launch. Remembered for the backward pass."""
        rows = (name,) if name else kind.rows
        sequence = self.out.sequence()
        work = self._about(self.shape.kernel_ns * kind.weight)
        if kind in (_LINEAR, _NORM, _CONV):
            self._parameters += 2
        with self.out.inside(path):
            self._nest(rows, kind, work, stream, {"Sequence number": sequence, "Fwd thread id": 0})
        self._backward.append(
            (path, kind, sequence, tuple(self._about(self.shape.kernel_ns * w) for _, _, w in kind.backward))
        )

    def _nest(self, rows: tuple[str, ...], kind: _Kind, work: int, stream: int, extra: dict[str, Any]) -> None:
        budget = max(self._about(self.shape.op_host_ns) - self.shape.launch_ns, 2_000)
        part = budget // (len(rows) + 2)
        self._descend(list(rows), kind, part, work, stream, extra)
        self.out.host(part)

    def _descend(self, rows: list[str], kind: _Kind, part: int, work: int, stream: int, extra: dict[str, Any]) -> None:
        args = {**extra, "Input Dims": [list(d) for d in kind.dims], "Input type": ["float"] * len(kind.dims)}
        with self.out.row(rows[0], "cpu_op", **args):
            self.out.host(part)
            if len(rows) > 1:
                self._descend(rows[1:], kind, part, work, stream, {})
            else:
                self.out.launch(kind.kernel, self.shape.launch_ns, work, stream=stream)
                self.out.host(part)

    def _run_backward(self) -> None:
        out = self.out
        out.host(self._about(12_000))
        out.thread(AUTOGRAD, self._about(15_000))
        nodes = list(reversed(self._backward))
        per_bucket = len(nodes) // self.shape.buckets if self.shape.buckets else 0
        for number, (path, kind, sequence, works) in enumerate(nodes):
            with out.inside(path):
                self._node(kind, sequence, works)
            if per_bucket and (number % per_bucket == per_bucket - 1):
                self._all_reduce()
        if self.shape.buckets:
            with out.phase("collective"):
                out.order(COMM, COMPUTE, 2000)
        out.thread(MAIN, self._about(15_000))

    def _node(self, kind: _Kind, sequence: int, works: tuple[int, ...]) -> None:
        extra = {"Sequence number": sequence, "Fwd thread id": 1}
        args = {**extra, "Input Dims": [[64, 512]], "Input type": ["float"]}
        with self.out.row(f"autograd::engine::evaluate_function: {kind.node}", "cpu_op", **args):
            self.out.host(self._about(2500))
            with self.out.row(kind.node, "cpu_op", **args):
                self.out.host(self._about(1500))
                for (name, kernel, weight), work in zip(kind.backward, works, strict=True):
                    backward = _Kind((name,), kernel, weight, "", (), ((64, 512), (512, 512)))
                    self._nest((name,), backward, work, COMPUTE, {})

    def _all_reduce(self) -> None:
        """One gradient bucket: a collective that starts when the gradients are there, on a stream of its own."""
        out = self.out
        with (
            out.phase("collective"),
            out.row("c10d::allreduce_", "cpu_op"),
            out.row("nccl:all_reduce", "user_annotation"),
        ):
            out.host(self._about(9000))
            out.order(COMPUTE, COMM, 2000)
            work = self._about(self.shape.kernel_ns * 12 / max(self.shape.buckets, 1) * self.shape.blocks)
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            out.launch(name, self.shape.launch_ns, work, stream=COMM, kind="comm")

    def _optimizer(self) -> None:
        name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
        kernel = _Kind(("aten::_foreach_add_",), name, 0, "", (), ((512, 512),))
        self.out.host(self._about(30_000))
        for _ in range(6):
            if self.shape.foreach:
                self._nest(("aten::_foreach_add_",), kernel, self._about(self.shape.kernel_ns * 1.5), COMPUTE, {})
        if not self.shape.foreach:
            for _ in range(self._parameters * 3):
                self._nest(("aten::add_",), kernel, self._about(self.shape.kernel_ns * 0.3), COMPUTE, {})

    def _upload(self) -> None:
        with (
            self.out.row("aten::to", "cpu_op"),
            self.out.row("aten::_to_copy", "cpu_op"),
            self.out.row("aten::copy_", "cpu_op"),
        ):
            self.out.host(self._about(9_000))
            work = self._about(4_000)
            self.out.launch("Memcpy HtoD (Pinned -> Device)", 6_000, work, kind="h2d")

    def _read_back(self) -> None:
        with self.out.row("aten::item", "cpu_op"), self.out.row("aten::_local_scalar_dense", "cpu_op"):
            self.out.host(self._about(5_000))
            self.out.launch("Memcpy DtoH (Device -> Pageable)", 5_000, 1_500, kind="d2h")
            self.out.add_sync()
            self.out.host(self._about(3_000))

    def _module(self, parent: tuple[str, ...], kind: str) -> _Module:
        number = self._names.get(kind, 0)
        self._names[kind] = number + 1
        return _Module(self.out, (*parent, f"{kind}_{number}"), named=self.shape.stacks)

    def _about(self, ns: float) -> int:
        return round(ns * self.rng.uniform(0.6, 1.6))


class _Module:
    """A module's forward call: the rows that name it, and the path of what runs in it."""

    def __init__(self, out: Builder, path: tuple[str, ...], *, named: bool) -> None:
        self._out, self._path, self._named = out, path, named

    def __enter__(self) -> tuple[str, ...]:
        self._in = self._out.inside(self._path)
        self._in.__enter__()
        if self._named:
            self._row = self._out.row(f"nn.Module: {self._path[-1]}", "python_function")
            self._row.__enter__()
        self._out.host(1500)
        return self._path

    def __exit__(self, *error: object) -> None:
        self._out.host(500)
        if self._named:
            self._row.__exit__(None, None, None)
        self._in.__exit__(None, None, None)
