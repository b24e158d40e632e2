"""The cases: a program with the published figures, and what was measured after the change.

Each names its source, what of it is assumed, and the bands in which a prediction must lie: those of the measurement,
widened by 25 % of what was saved or to the precision of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.world.program import Step

from .programs import APPLY, GATHER, MS, SCATTER, US, Load, Writer, foreach, forward_pass

YES = ("yes", "likely", "not yet")
NOT_YES = ("no", "unlikely", "marginal")


@dataclass(frozen=True)
class Truth:
    """What must be said. Times in ms per step; `None`: not asked."""

    verdicts: Sequence[str] = ()
    step_with_graphs: tuple[float, float] | None = None
    first: Sequence[str] = ()  # one of these fixes is among the plan's first lines
    lines: int = 1  # so many lines count as first
    saves: dict[str, tuple[float, float]] = field(default_factory=dict)  # of fixes alone
    absent: Sequence[str] = ()  # fixes that must not be lines
    bound: Sequence[str] = ()
    busy: float | None = None  # share of the step
    base: bool = False  # the step time that gains count from holds the real one, where none is given
    exposed: tuple[float, float] | None = None  # communication without compute
    nobody: bool = False  # no rank holds the others up


@dataclass(frozen=True)
class Case:
    """A published pair; `program`: cases of one program count once."""

    name: str
    source: str
    work: str
    before_ms: float
    after_ms: float | None
    write: Callable[[], Step]
    truth: Truth
    program: str = ""
    busy_is_the_answer: bool = False  # the device's time was set to the published step with graphs
    assumed: str = ""
    ranks: int = 1
    cost_ns: tuple[int, int] = (0, 0)  # what recording adds to an operator's row and to a call's


def _vocoder(name: str, tokens: int, before: float, after: float, band: tuple[float, float], *verdicts: str) -> Case:
    return Case(
        name, "sgl-project/sglang-omni#798", f"streaming vocoder, {tokens} tokens", before, after,
        lambda: forward_pass(3_000, 65.3, after * 0.98),
        Truth(verdicts or YES, band), "vocoder", busy_is_the_answer=True,
        assumed="3,000 launches; the device's time is that of the graph",
    )  # fmt: skip


def _decode(name: str, model: str, before: float, after: float) -> Case:
    return Case(
        name, "mudler/vllm.cpp#332", f"{model} decode, batch 8", before, after,
        lambda: forward_pass(450, 2.25, before - 0.3),
        Truth(NOT_YES, (0.94 * after, 1.06 * after)), "vllm.cpp decode", busy_is_the_answer=True,
        assumed="5 µs of host time for each of 450 launches, kernels back to back",
    )  # fmt: skip


def _reading_loss(name: str, before: float, after: float, ahead_ms: float) -> Case:
    """A device-bound step whose loss is read before the reductions; `ahead_ms`: what hangs in the queue then."""

    def write() -> Step:
        writer = Writer(name)
        host = 0.35 * (before - 0.29)
        writer.work(Load(300, host / 2, 0.7 * ahead_ms), forward=True)
        writer.backward(Load(300, host / 2, 0.3 * ahead_ms))
        writer.read()
        writer.out.host(0.26 * MS)
        writer.all_reduce(0.05, 4, overlap=False)
        writer.optimizer(foreach(40, 0.4, before - ahead_ms - 0.35))
        return writer.step()

    return Case(
        name, "TorchDR/TorchDR#309", "one .item() before the reductions", before, after, write,
        Truth(saves={"read_backs": (0.2, 0.4)}), "TorchDR",
        assumed="600 launches of 0.35 of the step on the host; 0.26 ms of Python between the read and the reduction",
    )  # fmt: skip


def _detector(name: str, device: str, wall: float, busy: float, kernels: int, host_us: float, truth: Truth) -> Case:
    """RF-DETR nano; G rows: wall and busy are given."""

    def write() -> Step:
        writer = Writer(name)
        third = kernels // 3
        writer.work(Load(third, third * host_us / 1e3, busy / 3), forward=True)
        writer.backward(Load(third, third * host_us / 1e3, busy / 3))
        rest = kernels - 2 * third
        writer.optimizer(foreach(rest, rest * host_us / 1e3, busy / 3, "aten::_foreach_mul_"))
        return writer.step()

    return Case(
        name, "roboflow/rf-detr#1410", f"RF-DETR nano, {device}", wall, None, write, truth, f"rf-detr {device}",
        assumed="a third of the kernels each in forward, backward and optimizer",
    )  # fmt: skip


def _fairchem() -> Step:
    writer = Writer("fairchem")
    writer.batch(0.3)
    writer.work(Load(4_200, 52.0, 36.0, reads=174, after_read_us=15, views=3), forward=True)
    writer.backward(Load(5_600, 70.0, 49.0, reads=174, after_read_us=15, views=3))
    writer.optimizer(foreach(400, 5.0, 2.7))
    return writer.step()


def _libreyolo() -> Step:
    writer = Writer("libreyolo")
    writer.batch(2.2)
    writer.work(Load(2_400, 138.0, 28.5, reads=17, after_read_us=100, views=4), forward=True)
    writer.work(Load(1, 0.1, 16.0, name="aten::_cdist_forward", kernel="cdist_kernel_cuda_impl"))
    writer.backward(Load(2_900, 106.0, 56.6, views=3))
    writer.optimizer(Load(1_400, 46.5, 5.7, name="aten::mul_", kernel="vectorized_elementwise_kernel<4, MulFunctor>"))
    return writer.step()


def _unirl(reads: int) -> Callable[[], Step]:
    def write() -> Step:
        writer = Writer("unirl")
        after = {512: 28.9, 2048: 116.1}[reads]
        writer.work(Load(reads * 4, after - 0.5, after * 0.4, reads=reads), forward=True)
        return writer.step()

    return write


def _lanfactory(other_ms: float) -> Callable[[], Step]:
    def write() -> Step:
        writer = Writer("lanfactory")
        if other_ms:
            writer.batch(other_ms)
        writer.work(Load(20, 0.6, 0.03), forward=True)
        writer.backward(Load(30, 0.7, 0.05))
        writer.optimizer(foreach(6, 0.5, 0.03))
        writer.read()
        return writer.step()

    return write


def _diffusers() -> Step:
    writer = Writer("diffusers")
    writer.work(Load(9_000, 1_500.0, 8_180.0, reads=27), forward=True)
    return writer.step()


def _yolo() -> Step:
    writer = Writer("yolo26x")
    writer.work(Load(1_500, 25.0, 78.0, fills=968, fill_us=6.5, reads=4), forward=True)
    writer.backward(Load(2_200, 35.0, 115.0, fills=1_668, fill_us=6.5))
    writer.optimizer(foreach(220, 4.0, 12.0))
    return writer.step()


def _groups() -> Step:
    """465 groups, each an Adam of ten multi-tensor launches."""
    writer = Writer("groups")
    writer.work(Load(1_400, 44.0, 27.0), forward=True)
    writer.backward(Load(1_900, 60.0, 35.0))
    out = writer.out
    with out.row("Optimizer.step#AdamW.step", "user_annotation"):
        for _ in range(465):
            for name in (
                "aten::_foreach_add_",
                "aten::_foreach_lerp_",
                "aten::_foreach_mul_",
                "aten::_foreach_addcdiv_",
            ):
                with out.row(name):
                    out.host(25 * US)
                    out.launch(APPLY, 4 * US, 3 * US)
            out.host(12 * US)
    return writer.step()


def _loader() -> Step:
    writer = Writer("geti")
    writer.batch(3.0, workers=2, fetch_ms=664.0)
    writer.work(Load(1_200, 25.0, 24.0), forward=True)
    writer.backward(Load(1_800, 38.0, 36.0))
    writer.optimizer(foreach(100, 4.0, 3.0))
    writer.read()
    return writer.step()


def _yonolas() -> Step:
    writer = Writer("yonolas")
    writer.batch(0.3, workers=4, fetch_ms=40.0)
    writer.work(Load(500, 8.0, 40.0), forward=True)
    writer.backward(Load(800, 12.0, 57.0))
    writer.optimizer(foreach(60, 1.0, 2.0))
    return writer.step()


def _four_cards() -> Step:
    writer = Writer("t4")
    writer.batch(0.2, workers=4, fetch_ms=80.0)
    writer.work(Load(1_300, 60.0, 110.0), forward=True)
    writer.backward(Load(1_800, 50.0, 79.0), reduce=[25.0] * 4, ranks=4)
    writer.optimizer(foreach(60, 3.0, 14.0))
    return writer.step()


def _accumulating(reduce_ms: float, step_ms: float) -> Callable[[], Step]:
    """Four micro-steps of an update, each of which reduces all gradients."""

    def write() -> Step:
        writer = Writer("no_sync")
        busy = step_ms / 4
        for _ in range(4):
            writer.work(Load(300, 6.0, busy / 3), forward=True)
            writer.backward(Load(500, 10.0, 2 * busy / 3), reduce=[reduce_ms / 4] * 4, ranks=16)
        writer.optimizer(foreach(40, 1.0, 3.0))
        return writer.step()

    return write


def _long_kernels(name: str, step_ms: float, kernels: int, training: bool = False) -> Callable[[], Step]:
    def write() -> Step:
        writer = Writer(name)
        if not training:
            writer.work(Load(kernels, kernels * 0.012, 0.99 * step_ms), forward=True)
            writer.read()
            return writer.step()
        writer.batch(0.2)
        writer.work(Load(kernels // 3, kernels * 0.004, 0.33 * step_ms), forward=True)
        writer.backward(Load(kernels // 2, kernels * 0.006, 0.62 * step_ms))
        writer.optimizer(foreach(kernels // 10, kernels * 0.001, 0.03 * step_ms))
        return writer.step()

    return write


def _efficientnet() -> Step:
    writer = Writer("efficientnet")
    writer.work(Load(1_500, 15.0, 15.9, views=2), forward=True)
    return writer.step()


def _resnext() -> Step:
    writer = Writer("resnext")
    writer.work(Load(700, 9.0, 10.0, views=6), forward=True)
    writer.backward(Load(1_100, 14.0, 19.0, views=6))
    writer.optimizer(foreach(200, 2.0, 2.0, views=6))
    return writer.step()


def _one_operator() -> Step:
    writer = Writer("one")
    writer.work(Load(1, 0.0086, 0.004, name="aten::add"))
    return writer.step()


def _one_unit() -> Step:
    writer = Writer("one unit")
    writer.batch(0.5)
    writer.sharded(GATHER, "_allgather_base", 20.0, "FSDP::pre_forward", 8)
    writer.work(Load(1_500, 45.0, 310.0), forward=True)
    out = writer.out
    with out.on_autograd(15 * US, 15 * US):
        with out.row("autograd::engine::evaluate_function: AddmmBackward0"), out.row("AddmmBackward0"):
            writer.sharded(GATHER, "_allgather_base", 20.0, "FSDP::pre_backward", 8)
            writer.work(Load(3_000, 75.0, 570.0))
        node = "RegisterPostBackwardFunctionBackward"
        with out.row(f"autograd::engine::evaluate_function: {node}"), out.row(node):
            writer.sharded(SCATTER, "_reduce_scatter_base", 40.0, "FSDP::post_backward_reduce", 8)
    writer.optimizer(foreach(40, 3.0, 28.0))
    out.sync()
    return writer.step()


CASES: list[Case] = [
    _vocoder("A1", 4, 66.3, 30.1, (28.0, 33.0)),
    _vocoder("A2", 5, 65.8, 30.7, (28.0, 34.0)),
    _vocoder("A3", 8, 65.6, 34.0, (31.0, 37.0)),
    _vocoder("A4", 13, 65.4, 40.4, (37.0, 44.0)),
    _vocoder("A5", 25, 74.8, 58.3, (55.0, 64.0), *YES, "marginal"),
    _vocoder("A6", 100, 222.9, 215.3, (206.0, 223.0), *NOT_YES),
    Case(
        "A7", "wejoncy/sfllm#46", "Qwen3-4B prefill, 129 tokens", 16.613, 5.685, lambda: forward_pass(900, 16.3, 4.5),
        Truth(YES, (4.2, 7.1)), "sfllm", assumed="900 launches; the graph's work is padded by 24 %",
    ),
    Case(
        "A8", "wejoncy/sfllm#46", "the same, 513 tokens", 16.371, 13.729, lambda: forward_pass(900, 16.2, 11.0),
        Truth(YES, (10.9, 14.9)), "sfllm", assumed="as A7, padded by 25 %",
    ),
    Case(
        "A9", "vllm-project/vllm-omni#7881", "audio VAE decode, H100", 66.0, None,
        lambda: forward_pass(2_729, 65.0, 37.6), Truth(YES, (35.0, 42.0)), "audio VAE",
        assumed="the middle of 42 to 90 ms; kernels are fused by compiling, which graphs alone do not",
    ),
    Case(
        "A16", "paiml/realizar#201", "Qwen decode, batch 1", 3.8, 3.0, lambda: forward_pass(647, 3.7, 2.9),
        Truth((*YES, "marginal"), (2.7, 3.3)), "realizar", busy_is_the_answer=True, assumed="the device's time is 2.9 ms",
    ),
    _decode("B1", "Qwen3-0.6B", 42.64, 41.31),
    _decode("B2", "Qwen3-1.7B", 54.13, 53.79),
    _decode("B3", "Qwen3-4B", 79.00, 79.82),
    Case(
        "B6", "hao-ai-lab/FastVideo#1660", "causal Wan denoising", 404.4, 418.7, _long_kernels("wan", 404.4, 1_600),
        Truth(NOT_YES), "Wan", assumed="a hundredth of the clip is a step; 1,600 launches of 12 µs",
    ),
    Case(
        "B7", "karpathy/build-nanogpt#6", "GPT-2 124M training, compiled", 126.0, 129.0,
        _long_kernels("gpt2", 126.0, 1_500, training=True), Truth(NOT_YES), "nanogpt", assumed="1,500 launches",
    ),
    Case(
        "B14a", "pytorch/pytorch#114860", "one operator", 0.0086, 0.027, _one_operator,
        Truth((*NOT_YES, "cannot say")), "one operator",
    ),
    Case(
        "C1", "facebookresearch/fairchem#2193, #2203", "second-order backward, 8 B200, 348 reads", 151.2, 127.9, _fairchem,
        Truth(first=("read_backs", "graphs", "pointwise_fusion"), saves={"read_backs": (5.0, 40.0)}, bound=("host",)),
        "fairchem", assumed="10,200 kernels over forward and backward, 15 µs of Python after a read",
    ),
    _reading_loss("C3a", 7.158, 6.873, 4.5),
    _reading_loss("C3b", 3.955, 3.659, 2.5),
    _reading_loss("C3c", 60.199, 59.905, 45.0),
    Case(
        "C4", "LibreYOLO/libreyolo#761, #763", "RF-DETR-s, batch 8", 298.0, 234.0, _libreyolo,
        Truth(
            saves={"fused_optimizer": (24.0, 45.0)}, absent=("data_loading",), bound=("host",),
            first=("fused_optimizer",), lines=2,
        ),
        "libreyolo", assumed="6,700 launches; reads in forward",
    ),
    Case("C5a", "UniRL#441", "512 reads a step", 34.6, 28.9, _unirl(512), Truth(saves={"read_backs": (4.1, 7.7)}), "UniRL"),
    Case("C5b", "UniRL#441", "2,048 reads a step", 138.9, 116.1, _unirl(2_048), Truth(saves={"read_backs": (16.4, 31.0)}), "UniRL"),
    Case(
        "C6", "lnccbrown/LANfactory#120", "tiny network, loss read each step", 1.97, 1.89, _lanfactory(0.0),
        Truth(saves={"read_backs": (0.0, 0.1)}), "LANfactory",
    ),
    Case(
        "C6b", "lnccbrown/LANfactory#120", "the same, 15 ms of loader", 17.0, 16.9, _lanfactory(15.0),
        Truth(saves={"read_backs": (0.0, 0.17)}, first=("data_loading",)), "LANfactory",
    ),
    Case(
        "C7", "huggingface/diffusers#14589", "Cosmos3, 27 copies to the host", 8_242.9, 8_162.8, _diffusers,
        Truth(saves={"read_backs": (0.0, 90.0)}, verdicts=NOT_YES, bound=("device",)), "diffusers",
        assumed="9,000 launches a step",
    ),
    Case(
        "D1", "ultralytics/ultralytics#26180, #26181", "yolo26x, batch 64, B200", 228.3, 203.3, _yolo,
        Truth(first=("fills",), saves={"fills": (17.0, 27.0), "read_backs": (0.0, 3.0)}, bound=("device",)), "yolo26x",
        assumed="fills of 6.5 µs",
    ),
    _detector(
        "D2", "L4, batch 4", 141.0, 64.4, 4_472, 31.5,
        Truth(verdicts=YES, bound=("host", "mixed"), busy=0.457),
    ),
    _detector("D3", "RTX 4060, batch 4", 105.9, 96.4, 4_379, 12.0, Truth(verdicts=NOT_YES, bound=("device",), busy=0.91)),
    Case(
        "D4", "roboflow/rf-detr#1409", "465 parameter groups", 169.0, 114.0, _groups,
        Truth(saves={"parameter_groups": (41.0, 65.0)}, first=("parameter_groups", "fused_optimizer")), "rf-detr groups",
        assumed="four launches of 29 µs a group",
    ),
    Case(
        "E1", "open-edge-platform/geti#5958", "2 workers, RTX 3090", 333.0, 77.0, _loader,
        Truth(first=("data_loading",), saves={"data_loading": (206.0, 262.0)}, bound=("input", "host")), "geti",
        assumed="batches of 664 ms in two workers",
    ),
    Case(
        "E5", "CondadosAI/modern-yonolas#40", "loader ten times as fast as the model", 100.0, 100.0, _yonolas,
        Truth(verdicts=NOT_YES, absent=("data_loading", "graphs"), bound=("device",)), "yonolas",
    ),
    Case(
        "E6", "traceopt-ai/traceml#469", "RF-DETR nano, DDP on 4 T4", 264.3, 215.5, _four_cards,
        Truth(exposed=(30.0, 52.0), absent=("data_loading",), nobody=True), "traceml", ranks=4,
        assumed="four buckets of 25 ms behind a backward pass of 79 ms",
    ),
    Case(
        "F1a", "huggingface/accelerate#1153", "accumulation over two nodes", 2_000.0, 910.0, _accumulating(420.0, 300.0),
        Truth(first=("no_sync",), saves={"no_sync": (817.0, 1_360.0)}, bound=("communication",)), "no_sync",
        assumed="four micro-steps, reductions of 420 ms",
    ),
    Case(
        "F2", "sgl-project/SpecForge#566", "FSDP in one unit on 8 GPUs", 990.0, 920.0, _one_unit,
        Truth(first=("shard_by_layer",), lines=2, saves={"shard_by_layer": (52.0, 88.0)}, exposed=(40.0, 100.0)), "fsdp",
        assumed="gathers of 20 ms before forward and backward, a scatter of 40 ms behind it",
    ),
    Case(
        "H1", "pytorch/pytorch#82793", "EfficientNet-b5, A100, batch 1: 30.50 ms recorded", 17.84, None,
        _efficientnet, Truth(base=True), "efficientnet", cost_ns=(2_400, 2_500),
        assumed="1,500 launches, each of 10 µs on the host and 10 µs of recording for 3.4 rows and a call",
    ),
    Case(
        "H2", "pytorch/kineto#743", "ResNeXt-50 training, A100: 117 ms recorded", 32.0, None,
        _resnext, Truth(base=True), "resnext", cost_ns=(5_000, 5_000),
        assumed="2,000 launches, each with 42 µs of recording for 7.4 rows and a call; a device that is busy for 31 ms",
    ),
    _detector("G1", "RTX 4060, batch 1", 41.4, 29.8, 4_214, 9.7, Truth(bound=("host", "mixed"), busy=0.72)),
    _detector("G3", "RTX 4060 small, batch 1", 54.8, 40.9, 4_781, 11.3, Truth(bound=("host", "mixed"), busy=0.746)),
    _detector("G4", "L4, batch 1", 132.9, 25.8, 4_228, 31.2, Truth(verdicts=YES, bound=("host",), busy=0.194)),
    _detector("G6", "L4 small, batch 2", 155.5, 51.5, 4_958, 31.2, Truth(verdicts=YES, bound=("host",), busy=0.331)),
]  # fmt: skip
