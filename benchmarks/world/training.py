"""Random training steps: a model of a few modules, its backward pass, an optimizer, inputs, a read-back, collectives, side streams."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sample_traces.generator import kineto

from .edits import SYNC_PHASE
from .program import COMM, COMPUTE, ENCODER, NET, SIDE, Builder, Op, Step

EVERY = {"each-step": 1, "every-2": 2, "every-4": 4, "every-5": 5, "every-10": 10}
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Shape:
    """What kind of step to draw. Times in nanoseconds; `op_host_ns` is a typical operator's host time, launch call included."""

    blocks: int = 4
    op_host_ns: int = 14_000
    kernel_ns: int = 6_000
    sync: str = "none"  # or mid-step, or one of `EVERY`
    buckets: int = 0  # gradient buckets: collectives on a stream of their own
    overlap: bool = True  # compute goes on while a collective runs
    ranks: int = 1
    side: bool = False  # one branch of every block runs on a side stream
    inputs_on_device: bool = False
    loader_ns: int = 60_000  # a batch, on the main thread or in a worker
    workers: int = 0
    hand_over_ns: int = 300_000  # taking a batch from a worker
    tail_ns: int = 40_000
    foreach: bool = True
    stacks: bool = True  # rows that name modules
    launch_ns: int = 4_000
    views: int = 0  # rows inside each operator that launch nothing: views, allocations


@dataclass(frozen=True)
class Kind:
    """An operator: its rows from outer to inner, its kernel and its weight, its backward node and that node's operators."""

    rows: tuple[str, ...]
    kernel: str
    weight: float
    node: str
    backward: tuple[tuple[str, str, float], ...]
    dims: tuple[tuple[int, ...], ...]


_AT = "void at::native::"
ELEMENTWISE = f"{_AT}vectorized_elementwise_kernel<4, "
_GRADIENT = ((64, 512), (512, 512))
LINEAR = Kind(
    ("aten::linear", "aten::addmm"), "sm90_xmma_gemm_bf16_128x128_tn", 2.2, "AddmmBackward0",
    (("aten::mm", "sm90_xmma_gemm_bf16_128x64_nn", 2.2), ("aten::mm", "sm90_xmma_gemm_bf16_128x64_nt", 2.2),
     ("aten::sum", f"{_AT}reduce_kernel<512, 1>", 0.6)), ((64, 512), (512, 512), (512,)),
)  # fmt: skip
NORM = Kind(
    ("aten::layer_norm", "aten::native_layer_norm"), f"{_AT}vectorized_layer_norm_kernel", 0.8, "NativeLayerNormBackward0",
    (("aten::native_layer_norm_backward", f"{_AT}layer_norm_grad_input_kernel", 1.1),), ((64, 512), (512,), (512,)),
)  # fmt: skip
GELU = Kind(
    ("aten::gelu",), f"{ELEMENTWISE}GeluCUDAKernel>", 0.5, "GeluBackward0",
    (("aten::gelu_backward", f"{ELEMENTWISE}GeluBackwardCUDAKernel>", 0.6),), ((64, 512),),
)  # fmt: skip
ADD = Kind(("aten::add",), f"{ELEMENTWISE}CUDAFunctor_add>", 0.5, "AddBackward0", (), ((64, 512), (64, 512)))
ATTENTION = Kind(
    ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"), "flash_fwd_kernel", 3.0,
    "ScaledDotProductFlashAttentionBackward0",
    (("aten::_scaled_dot_product_flash_attention_backward", "flash_bwd_kernel", 5.0),), ((8, 8, 64, 64),) * 3,
)  # fmt: skip
CONV = Kind(
    ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution"), "sm90_xmma_fprop_implicit_gemm", 2.6,
    "ConvolutionBackward0",
    (("aten::convolution_backward", "sm90_xmma_dgrad_implicit_gemm", 2.6),
     ("aten::convolution_backward", "sm90_xmma_wgrad_implicit_gemm", 2.8)), ((16, 64, 32, 32), (64, 64, 3, 3)),
)  # fmt: skip
RELU = Kind(
    ("aten::relu", "aten::clamp_min"), f"{ELEMENTWISE}clamp_min>", 0.4, "ReluBackward0",
    (("aten::threshold_backward", f"{ELEMENTWISE}threshold>", 0.5),), ((16, 64, 32, 32),),
)  # fmt: skip
_BLOCKS = {
    "transformer": (("LayerNorm", NORM), ("Linear", LINEAR), ("Attention", ATTENTION), ("Linear", LINEAR), ("", ADD),
                    ("LayerNorm", NORM), ("Linear", LINEAR), ("GELU", GELU), ("Linear", LINEAR), ("", ADD)),
    "convolutional": (("Conv2d", CONV), ("ReLU", RELU), ("Conv2d", CONV), ("", ADD), ("ReLU", RELU)),
    "mlp": (("Linear", LINEAR), ("GELU", GELU)),
}  # fmt: skip
BLOCKS = tuple(_BLOCKS)
_VIEWS = ("aten::empty", "aten::view", "aten::transpose", "aten::as_strided")


def build(shape: Shape, block: str, seed: str) -> Step:
    """Return a step of `shape` whose blocks are of kind `block`; the same seed gives the same step."""
    return Writer(shape, block, random.Random(seed)).step()


def serve(shape: Shape, block: str, seed: str) -> Step:
    """Return one pass of a server through the same model, its token read back; the same seed gives the same step."""
    return Writer(shape, block, random.Random(seed)).serving()


class Writer:
    def __init__(self, shape: Shape, block: str, rng: random.Random) -> None:
        self.shape, self.rng, self.out = shape, rng, Builder()
        self.block = _BLOCKS[block]
        self._names: dict[str, int] = {}
        self.tape: list[tuple[tuple[str, ...], Kind, tuple[int, ...]]] = []

    def step(self) -> Step:
        shape, out = self.shape, self.out
        inputs = self.rng.randint(1, 3)
        loader = "_MultiProcessingDataLoaderIter" if shape.workers else "_SingleProcessDataLoaderIter"
        with out.where(phase="data"), out.row(f"enumerate(DataLoader)#{loader}.__next__", "user_annotation"):
            if shape.workers:
                taken = {"ns": shape.hand_over_ns, "work_ns": shape.loader_ns, "workers": shape.workers}
                out.add(Op.BATCH, **taken)
            else:
                out.host(shape.loader_ns)
        with out.where(phase="input"):
            for _ in range(0 if shape.inputs_on_device else inputs):
                self._upload()
        with out.where(phase="zero_grad"), out.row("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation"):
            out.host(self._about(8_000))
        with out.where(phase="forward"):
            self._forward()
        with out.where(phase="loss"):
            self._forward_operator((), RELU, ("aten::cross_entropy_loss",))
        if shape.sync == "mid-step":
            self._read_back()
        with out.where(phase="backward"):
            self._run_backward()
        with out.where(phase="optimizer"), out.row("Optimizer.step#AdamW.step", "user_annotation"):
            self._optimizer()
        if shape.sync in EVERY:
            with out.where(every=EVERY[shape.sync]):
                self._read_back()
        self._results()
        with out.where(phase="tail"):
            out.host(shape.tail_ns)
        return Step(tuple(out.instrs), inputs if shape.inputs_on_device else 0, {NET: inputs, ENCODER: 1})

    def serving(self) -> Step:
        shape, out = self.shape, self.out
        with out.where(phase="schedule"):
            out.host(shape.loader_ns)
        inputs = self.rng.randint(2, 4)
        with out.where(phase="input"):
            for _ in range(inputs):
                self._upload()
        with out.where(phase="forward"):
            self._forward()
        with out.where(phase="sample"):
            for name in ("aten::softmax", "aten::argmax"):
                kernel = f"{_AT}reduce_kernel<512, 1, ArgMaxOps>"
                self._operator((name,), ((8, 32_000),), kernel, self._about(shape.kernel_ns))
            self._read_back()
        with out.where(phase="tail"):
            out.host(shape.tail_ns)
        return Step(tuple(out.instrs), 0, {NET: inputs, ENCODER: 1})

    # ------------------------------------------------------------------------------------------------------ pieces

    def _forward(self) -> None:
        with self._module((), "Net") as net:
            with self._module(net, "Stem") as stem:
                self._forward_operator(stem, LINEAR)
            with self._module(net, "Encoder") as encoder:
                for _ in range(self.shape.blocks):
                    with self._module(encoder, "Block") as block:
                        self._block(block)
            with self._module(net, "Head") as head:
                self._forward_operator(head, NORM)
                self._forward_operator(head, LINEAR)

    def _block(self, path: tuple[str, ...]) -> None:
        """One block; with a side stream, the operator in its middle runs there, and the next addition or the end waits for it."""
        aside = len(self.block) // 2 if self.shape.side and len(self.block) > 2 else None
        for position, (name, kind) in enumerate(self.block):
            stream = COMPUTE
            if position == aside:
                self._order(path, COMPUTE, SIDE)
                stream = SIDE
            elif aside is not None and position > aside and kind is ADD:
                self._order(path, SIDE, COMPUTE)
                aside = None
            if name:
                with self._module(path, name) as inner:
                    self._forward_operator(inner, kind, stream=stream)
            else:
                self._forward_operator(path, kind, stream=stream)
        if aside is not None:
            self._order(path, SIDE, COMPUTE)

    def _order(self, path: tuple[str, ...], first: int, then: int) -> None:
        with self.out.where(module=path):
            self.out.order(first, then, 1800)

    def _forward_operator(
        self, path: tuple[str, ...], kind: Kind, rows: Sequence[str] = (), stream: int = COMPUTE
    ) -> None:
        """One forward operator, remembered for the backward pass."""
        work = self._about(self.shape.kernel_ns * kind.weight)
        backward = tuple(self._about(self.shape.kernel_ns * weight) for _, _, weight in kind.backward)
        self.tape.append((path, kind, backward))
        with self.out.where(module=path):
            known = {"Sequence number": len(self.tape), "Fwd thread id": 0}
            self._operator(rows or kind.rows, kind.dims, kind.kernel, work, stream=stream, **known)

    def _operator(
        self,
        rows: Sequence[str],
        dims: Sequence[Sequence[int]],
        kernel: str,
        work: int,
        stream: int = COMPUTE,
        **known: Any,
    ) -> None:
        """An operator: its nested rows, host work and launch."""
        views = self.shape.views
        part = max(self._about(self.shape.op_host_ns) - self.shape.launch_ns, 2_000) // (len(rows) + 2 + views)

        def descend(rows: Sequence[str], known: dict[str, Any]) -> None:
            with self.out.row(rows[0], **known | _shapes(dims)):
                self.out.host(part)
                if rows[1:]:
                    descend(rows[1:], {})
                else:
                    for i in range(views):
                        with self.out.row(_VIEWS[i % len(_VIEWS)]):
                            self.out.host(part)
                    self.out.launch(kernel, self.shape.launch_ns, work, stream=stream)
                    self.out.host(part)

        descend(rows, known)
        self.out.host(part)

    def _run_backward(self) -> None:
        out, buckets = self.out, self.shape.buckets
        out.host(self._about(12_000))
        with out.on_autograd(self._about(15_000), self._about(15_000)):
            size = len(self.tape) // buckets if buckets else 0
            for number, sequence in enumerate(range(len(self.tape), 0, -1), 1):
                path, kind, works = self.tape[sequence - 1]
                with out.where(module=path):
                    self._node(kind, sequence, works)
                if size and number % size == 0:
                    self._all_reduce()
            if buckets:
                with out.where(phase="collective"):
                    out.order(COMM, COMPUTE, 2000)

    def _node(self, kind: Kind, sequence: int, works: tuple[int, ...]) -> None:
        args = {"Sequence number": sequence, "Fwd thread id": 1} | _shapes([(64, 512)])
        with self.out.row(f"autograd::engine::evaluate_function: {kind.node}", **args):
            self.out.host(self._about(2500))
            with self.out.row(kind.node, **args):
                self.out.host(self._about(1500))
                for (name, kernel, _), work in zip(kind.backward, works, strict=True):
                    self._operator((name,), _GRADIENT, kernel, work)

    def _all_reduce(self) -> None:
        """One gradient bucket: a collective that starts when the gradients are there, on a stream of its own."""
        out, shape = self.out, self.shape
        args = kineto.collective("allreduce", (1 << 20, 1 << 20), "BFloat16", shape.ranks) if shape.ranks > 1 else {}
        with out.where(phase="collective"):
            with out.row("c10d::allreduce_"), out.row("nccl:all_reduce", "user_annotation"):
                out.host(self._about(9000))
                out.order(COMPUTE, COMM, 2000)
                work = self._about(shape.kernel_ns * 12 / shape.buckets * shape.blocks)
                out.launch(ALL_REDUCE, shape.launch_ns, work, stream=COMM, kind="comm", args=args)
            if not shape.overlap:
                out.order(COMM, COMPUTE, 2000)

    def _optimizer(self) -> None:
        shape, kernel = self.shape, f"{_AT}(anonymous namespace)::multi_tensor_apply_kernel"
        self.out.host(self._about(30_000))
        count, name, weight = 6, "aten::_foreach_add_", 1.5
        if not shape.foreach:
            parameters = 2 * sum(kind in (LINEAR, NORM, CONV) for _, kind, _ in self.tape)
            count, name, weight = parameters * 3, "aten::add_", 0.3
        for _ in range(count):
            self._operator((name,), ((512, 512),), kernel, self._about(shape.kernel_ns * weight))

    def _upload(self) -> None:
        with self.out.row("aten::to"), self.out.row("aten::_to_copy"), self.out.row("aten::copy_"):
            self.out.host(self._about(9_000))
            self.out.launch("Memcpy HtoD (Pinned -> Device)", 6_000, self._about(4_000), kind="h2d")

    def _results(self) -> None:
        """Read what the step was computed for; nothing here."""

    def _read_back(self) -> None:
        with self.out.where(phase=SYNC_PHASE), self.out.row("aten::item"), self.out.row("aten::_local_scalar_dense"):
            self.out.host(self._about(5_000))
            self.out.launch("Memcpy DtoH (Device -> Pageable)", 5_000, 1_500, kind="d2h")
            self.out.sync()
            self.out.host(self._about(3_000))

    @contextmanager
    def _module(self, parent: tuple[str, ...], kind: str) -> Iterator[tuple[str, ...]]:
        """A module's forward call: the rows that name it, and the path of what runs in it."""
        number = self._names[kind] = self._names.get(kind, -1) + 1
        path = (*parent, f"{kind}_{number}")
        with self.out.where(module=path):
            if self.shape.stacks:
                with self.out.row(f"nn.Module: {path[-1]}", "python_function"):
                    self.out.host(1500)
                    yield path
                    self.out.host(500)
            else:
                self.out.host(1500)
                yield path
                self.out.host(500)

    def _about(self, ns: float) -> int:
        return round(ns * self.rng.uniform(0.6, 1.6))


def _shapes(dims: Sequence[Sequence[int]]) -> dict[str, Any]:
    return {} if not dims else {"Input Dims": [list(d) for d in dims], "Input type": ["float"] * len(dims)}
