"""What the traced program does: a transformer's training step as nested host rows and device calls.

Owns the tree of operators, their shapes and the names of kernels. It knows nothing of time or of JSON rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

BATCH, TOKENS, HIDDEN, INNER, VOCAB = 4, 2048, 1024, 4096, 50304
ROWS = BATCH * TOKENS


@dataclass(frozen=True, slots=True)
class Kernel:
    """One piece of device work: `kind` picks a name from the pool, `ns` is its typical duration."""

    kind: str
    ns: int
    comm: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call into the device's runtime. `waits` names what it blocks on: none, stream or device."""

    name: str
    ns: int
    kernel: Kernel | None = None
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """A `cpu_op`. `grad` is what the autograd engine runs for it; only such an op has a sequence number."""

    name: str
    args: dict[str, object]
    body: tuple[Op | Call, ...] = ()
    grad: Op | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A Python frame or a module call; without stacks only its body leaves rows."""

    name: str
    body: tuple[Frame | Op | Call, ...] = field(default=())


Node = Frame | Op | Call


def op(name: str, dims: list[list[int]], *body: Op | Call, grad: Op | None = None, inputs: str = "") -> Op:
    """Return an `Op` whose args carry `dims` as a recording with shapes does; `inputs` are its scalars."""
    types = ["c10::BFloat16" if shape else "Scalar" for shape in dims]
    concrete = ["" if shape else inputs for shape in dims]
    args: dict[str, object] = {"Concrete Inputs": concrete, "Input type": types, "Input Dims": dims}
    return Op(name, args, body, grad)


def launch(kind: str, us: float) -> Call:
    """Return a kernel launch; matrix kernels of current GPUs go through the extended call.

    The duration is 0.26 `us`, which makes the device about as busy as the host.
    """
    kernel = Kernel(kind, int(us * 260))
    if kind == "gemm":
        return Call("cudaLaunchKernelExC", 4200, kernel)
    return Call("cudaLaunchKernel", 3800, kernel)


CAPTURING = Call("cudaStreamIsCapturing", 700)
OCCUPANCY = Call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 900)
ATTRIBUTE = Call("cudaFuncSetAttribute", 800)
MEMSET = Call("cudaMemsetAsync", 3000, Kernel("memset", 1200))
RECORD = Call("cudaEventRecord", 900)
STREAM_WAIT = Call("cudaStreamWaitEvent", 1100)
H2D = Call("cudaMemcpyAsync", 5200, Kernel("h2d", 48_000))
D2H = Call("cudaMemcpyAsync", 4800, Kernel("d2h", 1700))
STREAM_SYNC = Call("cudaStreamSynchronize", 2000, waits="stream")
DEVICE_SYNC = Call("cudaDeviceSynchronize", 2500, waits="device")
ALLREDUCE = Call("cudaLaunchKernelExC", 5200, Kernel("nccl", 140_000, comm=True))


def _view(name: str, dims: list[list[int]]) -> Op:
    return op(name, dims, op("aten::as_strided", [*dims, [], [], []], inputs="[1024, 1]"), inputs="0")


def _backward(name: str, *body: Op | Call) -> Op:
    inner = op(name, [[ROWS, HIDDEN]], *body)
    return op(f"autograd::engine::evaluate_function: {name}", [[ROWS, HIDDEN]], inner)


def _linear(width_in: int, width_out: int, us: float) -> Op:
    weight = [width_out, width_in]
    flipped = op("aten::t", [weight], _view("aten::transpose", [weight, [], []]))
    product = op(
        "aten::addmm",
        [[width_out], [ROWS, width_in], [width_in, width_out], [], []],
        CAPTURING,
        OCCUPANCY,
        launch("gemm", us),
        grad=_backward(
            "AddmmBackward0",
            flipped,
            op("aten::mm", [[ROWS, width_out], weight], CAPTURING, ATTRIBUTE, launch("gemm", us)),
            flipped,
            op("aten::mm", [weight[::-1], [ROWS, width_out]], MEMSET, CAPTURING, launch("gemm", us * 1.1)),
            op("aten::sum", [[ROWS, width_out], [], [], []], launch("reduce", 14), inputs="[0]"),
        ),
        inputs="1",
    )
    return op("aten::linear", [[BATCH, TOKENS, width_in], weight, [width_out]], flipped, product)


def _norm() -> Op:
    dims = [[BATCH, TOKENS, HIDDEN], [], [HIDDEN], [HIDDEN], []]
    empty = op("aten::empty", [[], [], [], [], [], []], inputs="[8192, 1024]")
    native = op(
        "aten::native_layer_norm",
        dims,
        empty,
        empty,
        launch("norm", 17),
        grad=_backward(
            "NativeLayerNormBackward0",
            op(
                "aten::native_layer_norm_backward",
                [*dims, [], []],
                empty,
                launch("norm", 24),
                launch("reduce", 9),
            ),
        ),
        inputs="1e-05",
    )
    return op("aten::layer_norm", [*dims, []], native, inputs="[1024]")


def _attention() -> Op:
    heads = [[BATCH, 16, TOKENS, 64]] * 3
    grad = _backward(
        "ScaledDotProductFlashAttentionBackward0",
        op(
            "aten::_scaled_dot_product_flash_attention_backward",
            [*heads, *heads],
            op(
                "aten::_flash_attention_backward",
                [*heads, *heads],
                launch("flash", 190),
                launch("elementwise", 8),
            ),
        ),
    )
    flash = op("aten::_flash_attention_forward", [*heads, []], OCCUPANCY, launch("flash", 88), inputs="0.0")
    return op(
        "aten::scaled_dot_product_attention",
        [*heads, [], [], []],
        op("aten::_scaled_dot_product_flash_attention", [*heads, [], []], flash, grad=grad, inputs="False"),
        inputs="False",
    )


def _pointwise(name: str, grad_name: str, us: float) -> Op:
    grad = _backward(grad_name, op("aten::mul", [[ROWS, HIDDEN], [ROWS, HIDDEN]], launch("elementwise", us)))
    return op(name, [[BATCH, TOKENS, HIDDEN], [BATCH, TOKENS, HIDDEN], []], launch("elementwise", us), grad=grad)


def _split() -> Op:
    grad = _backward("SplitBackward0", op("aten::cat", [[], []], launch("copy", 18), inputs="2"))
    dims = [[BATCH, TOKENS, 3 * HIDDEN], [], []]
    return op("aten::split", dims, *[_view("aten::narrow", [dims[0], [], []])] * 3, grad=grad, inputs="1024")


def _module(name: str, body: Op, *, functional: str) -> Frame:
    # Python looks a module's parameters up one by one; these frames are most of a recording with stacks.
    looked_up = (Frame("torch/nn/modules/module.py(1915): __getattr__"),) * 8
    called = Frame(f"torch/nn/functional.py(2421): {functional}", (body,))
    forward = Frame(f"torch/nn/modules/{name.lower()}.py(124): forward", (*looked_up, called))
    inner = Frame("torch/nn/modules/module.py(1747): _call_impl", (forward,))
    return Frame(f"nn.Module: {name}", (Frame("torch/nn/modules/module.py(1736): _wrapped_call_impl", (inner,)),))


@cache
def layer(index: int) -> Frame:
    """Return the forward pass of transformer block `index`; its backward hangs on the ops."""
    residual = _pointwise("aten::add", "AddBackward0", 16)
    attention: tuple[Node, ...] = (
        _module("LayerNorm", _norm(), functional="layer_norm"),
        _module("Linear", _linear(HIDDEN, 3 * HIDDEN, 118), functional="linear"),
        _split(),
        *[_view("aten::view", [[BATCH, TOKENS, HIDDEN], []])] * 3,
        _attention(),
        op("aten::contiguous", [[BATCH, 16, TOKENS, 64], []], launch("copy", 13), inputs="0"),
        _module("Linear", _linear(HIDDEN, HIDDEN, 44), functional="linear"),
        _module("Dropout", _pointwise("aten::native_dropout", "NativeDropoutBackward0", 11), functional="dropout"),
        residual,
    )
    mlp: tuple[Node, ...] = (
        _module("LayerNorm", _norm(), functional="layer_norm"),
        _module("Linear", _linear(HIDDEN, INNER, 152), functional="linear"),
        _module("GELU", _pointwise("aten::gelu", "GeluBackward0", 31), functional="gelu"),
        _module("Linear", _linear(INNER, HIDDEN, 149), functional="linear"),
        _module("Dropout", _pointwise("aten::native_dropout", "NativeDropoutBackward0", 11), functional="dropout"),
        residual,
    )
    blocks = (
        Frame("nn.Module: SelfAttention", (Frame("model.py(61): forward", attention),)),
        Frame("nn.Module: FeedForward", (Frame("model.py(97): forward", mlp),)),
    )
    return Frame(f"nn.Module: Block_{index}", (Frame("model.py(118): forward", blocks),))


@cache
def loss() -> Frame:
    """Return the head of the model and the loss."""
    flat = [ROWS, VOCAB]
    grad = _backward(
        "NllLossBackward0",
        op("aten::nll_loss_backward", [[], flat, [ROWS]], MEMSET, launch("reduce", 21)),
        op("aten::_log_softmax_backward_data", [flat, flat, []], launch("softmax", 96)),
    )
    entropy = op(
        "aten::cross_entropy_loss",
        [flat, [ROWS], []],
        op("aten::log_softmax", [flat, []], op("aten::_log_softmax", [flat, []], launch("softmax", 88))),
        op(
            "aten::nll_loss_nd",
            [flat, [ROWS]],
            op("aten::nll_loss", [flat, [ROWS]], launch("reduce", 12)),
            grad=grad,
        ),
    )
    return Frame("train.py(71): compute_loss", (_linear(HIDDEN, VOCAB, 830), entropy))


@cache
def load_batch() -> tuple[Op, ...]:
    """Return what the data loader does on the host."""
    pick = op("aten::select", [[TOKENS], [], []], op("aten::as_strided", [[TOKENS], [], [], []], inputs="[1]"))
    stack = op("aten::stack", [[], []], op("aten::cat", [[], []]), inputs="0")
    return (*[pick] * (2 * BATCH), stack, stack)


@cache
def move_batch() -> Op:
    """Return the copy of a batch to the device."""
    copy = op("aten::copy_", [[BATCH, TOKENS], [BATCH, TOKENS], []], H2D, inputs="True")
    empty = op("aten::empty_strided", [[], [], [], [], []], inputs="[4, 2048]")
    return op("aten::to", [[BATCH, TOKENS], [], []], op("aten::_to_copy", [[BATCH, TOKENS], []], empty, copy))


@cache
def reduce_gradients() -> Op:
    """Return one bucket's all-reduce, as DistributedDataParallel issues it during backward."""
    bucket = [[12_595_200]]
    comms = op("record_param_comms", [*bucket, [], [], [], []], STREAM_WAIT, CAPTURING, ALLREDUCE, RECORD, inputs="0")
    return op("c10d::allreduce_", [*bucket, [], [], []], RECORD, comms, inputs="-1")


@cache
def optimise() -> Frame:
    """Return the optimizer's fused update of one layer's parameters, with its loop over them."""
    dims = [[HIDDEN, HIDDEN], [HIDDEN, HIDDEN], [], [], []]
    checks = (Frame("<built-in function isinstance>"), Frame("torch/_tensor.py(1092): __hash__"))
    gather = Frame("torch/optim/adamw.py(88): _init_group", checks * 36)
    fused = op("aten::_fused_adamw_", dims, op("aten::empty", [[], []]), launch("adam", 62), inputs="0.01")
    return Frame("torch/optim/optimizer.py(485): wrapper", (gather, fused))


@cache
def clip() -> Op:
    """Return the norm of one layer's gradients."""
    return op("aten::_foreach_norm", [[HIDDEN, HIDDEN], []], launch("norm_reduce", 12), MEMSET, inputs="2")


@cache
def read_loss() -> Op:
    """Return the step's `loss.item()`, which waits for the device."""
    scalar = op("aten::_local_scalar_dense", [[1]], D2H, STREAM_SYNC)
    return op("aten::item", [[1]], scalar)
