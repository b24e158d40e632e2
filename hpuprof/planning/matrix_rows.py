"""Device rows of matrix operators that compute in fp32, and what they would take at least in fewer bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial

import numpy as np
from msgspec import Struct

from hpuprof.analysis.rank_view import RankView
from hpuprof.efficiency.formulas import Work
from hpuprof.efficiency.peaks import Peak
from hpuprof.efficiency.utilization import Utilization
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.arrays import Codes, Floats, Ints, Mask, among
from hpuprof.model.once import once
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import Trace
from hpuprof.planning.situation import ProgramCalls
from hpuprof.what_if.launch_program import Program

_OPERATOR = re.compile(r"^aten::(?:.*conv(?:olution|\d|_)|(?:add|badd)?b?mm$|linear$|matmul$)")
_LINEAR = re.compile(r"^aten::(?:addmm|mm|linear|_scaled_mm)$")
_SINGLE = re.compile(r"sgemm|scudnn|tf32|s1688gemm|f32f32|<float\b|_SB_")
"""Names of kernels for fp32: cuBLAS and cuDNN (`volta_sgemm_64x64_nt`, `cudnn_volta_scudnn_128x64_...`), CUTLASS
(`cutlass_80_tensorop_s1688gemm_...`, through TF32), templates over float, Tensile (`Cijk_..._SB_...`)."""
_SIMPLE = re.compile(r"sgemm|scudnn|_SB_|<float\b")
"""Those of them that do not go through TF32."""
_THROUGH_TF32 = re.compile(r"tf32|tensorop|1688")
_HALF = re.compile(r"half|bf16|bfloat|fp16|f16|hgemm|hcudnn|h884|h1688|_HB|_BB", re.IGNORECASE)
_POINTWISE = re.compile(r"elementwise_kernel")
_MATRIX = re.compile(r"gemm|scudnn")
"""Kernels that multiply matrices whichever operator launched them: those of custom and scripted ones are not listed."""
_FOLLOWS = re.compile(r"at::native::(?!.*(?:embedding|index|gather|scatter))|bn_[fb]w|batch_norm|pool")
"""Kernels that compute in the type of what a matrix operator gave them: ATen's, but those that look up in tables of
parameters, and normalization and pooling by cuDNN. Kernels of custom operators keep their type."""
SINGLE_TYPE = re.compile(r"^(?:fp32|f32|float32|float)$", re.IGNORECASE)
MOSTLY = 0.5
"""Share of the time of products that those on fp32 take at least in a model on fp32. What else computes in fp32 in one
on 16 bits was cast up on purpose (norms, softmax, losses), and would stay; by judgment."""
UNKNOWN_RATIO = 0.5
"""Least time in half as many bits where the peaks are unknown: half the bytes, twice the operations; by judgment."""


class MatrixRows(Struct, frozen=True, eq=False, dict=True):
    """Rows of fp32 matrix operators; columns of shape `(found,)`."""

    row: Ints  # of the program
    work: list[Work | None]  # of the operator; None: unknown
    names: list[str]  # of the kernels
    peak: Peak | None
    part: Floats  # share of each one's length in which matrices are multiplied: of a unit, its matrix engine's
    others: Ints  # rows of forward and backward that compute on what matrix operators give, in its type

    @staticmethod
    @once
    def find(of: ProgramCalls) -> MatrixRows:
        """Find them by the types of operators where those were recorded, else by names of kernels."""
        view, program = of.view, of.program
        trace, nesting = view.trace, view.links.nesting
        known = known_work(of)
        operator = view.links.operator[program.device_row]
        kernel = trace.device.name[program.device_row]
        names = [trace.names[int(n)] for n in kernel.tolist()]
        around = holding(known, nesting.stop, operator)
        matrix = _named(trace.names, trace.host.name[nesting.rows], _OPERATOR.search)
        named = nesting.around(matrix) if len(nesting.rows) else np.zeros(0, dtype=int)
        inside = np.zeros(len(operator), dtype=bool)
        has = operator >= 0
        inside[has] = (named[operator[has]] > 0) | matrix[operator[has]]
        rows, work = [], []
        computes = program.kind == DeviceKind.COMPUTE
        single = _named(trace.names, kernel, _SINGLE.search)
        no_half = ~_named(trace.names, kernel, _HALF.search)
        larger = ~_named(trace.names, kernel, _POINTWISE.search)
        fit = no_half & larger
        inside |= single & _named(trace.names, kernel, _MATRIX.search)
        part, typed, matrix_type = _by_engine(view, program)
        inside |= matrix_type
        for i in np.flatnonzero(computes & fit & (inside | (around >= 0))).tolist():
            outer = known.work[int(known.kind[around[i]])] if around[i] >= 0 else None
            # A compiler casts: the type that the engine worked in goes before that of the operator's inputs.
            if matrix_type[i] if typed[i] else outer.dtype == "fp32" if outer is not None else single[i]:
                rows.append(i)
                work.append(outer)
        follows = no_half & _named(trace.names, kernel, _FOLLOWS.search)
        follows &= computes & of.in_model[program.call]
        follows[rows] = False
        found = np.array(rows, dtype=np.int64)
        products = computes & inside & larger
        products[rows] = True
        if program.dur[found].sum() < MOSTLY * program.dur[products].sum():
            follows[:] = False
        return MatrixRows(found, work, [names[i] for i in rows], known.peak, part[found], np.flatnonzero(follows))

    @staticmethod
    @once
    def find_linear_in_half(of: ProgramCalls) -> MatrixRows:
        """Find products of linear layers in 16 bits: those of operators whose shapes and types were recorded."""
        view, program, known = of.view, of.program, known_work(of)
        peak, rows, work = known.peak, list[int](), list[Work | None]()
        if peak is None or "fp8" not in peak.dense_tflops:
            return MatrixRows(np.zeros(0, dtype=np.int64), [], [], peak, np.zeros(0), np.zeros(0, dtype=np.int64))
        trace, nesting = view.trace, view.links.nesting
        around = holding(known, nesting.stop, view.links.operator[program.device_row])
        kernel = trace.device.name[program.device_row]
        fit = (program.kind == DeviceKind.COMPUTE) & ~_named(trace.names, kernel, _POINTWISE.search)
        linear = _named(trace.names, trace.host.name[nesting.rows[known.position]], _LINEAR.match)
        for i in np.flatnonzero(fit & (around >= 0)).tolist():
            outer = known.work[int(known.kind[around[i]])]
            if linear[around[i]] and outer is not None and outer.dtype in ("bf16", "fp16") and outer.bytes is not None:
                rows.append(i)
                work.append(outer)
        names = [trace.names[int(kernel[i])] for i in rows]
        return MatrixRows(
            np.array(rows, dtype=np.int64), work, names, peak, np.ones(len(rows)), np.zeros(0, dtype=np.int64)
        )

    def bytes_ns(self) -> Floats:
        """Return how long each one's operands and result take through the device's memory [ns]."""
        if self.peak is None:
            return np.zeros(len(self.row))
        memory = self.peak.memory_tb_per_s * 1e3  # bytes per ns
        return np.array([((work.bytes if work else None) or 0) / memory for work in self.work])

    def least_in_fp8(self) -> Floats:
        """Return the least share of each one's time in 8 bits, by the roofline; all of it without such a type."""
        fast = None if self.peak is None else self.peak.dense_tflops.get("fp8")
        if self.peak is None or fast is None:
            return np.ones(len(self.row))
        slow, memory = self.peak.dense_tflops.get("bf16", fast), self.peak.memory_tb_per_s
        return np.array([_ratio(work, slow, fast, memory, 0.5) for work in self.work])

    @cached_property
    def simple(self) -> Mask:
        """Mark those whose kernel's name says that they do not go through TF32."""
        fits = {name: bool(_SIMPLE.search(name)) and not _THROUGH_TF32.search(name) for name in set(self.names)}
        return np.array([fits[name] for name in self.names], dtype=bool)

    def least_in_half(self) -> Floats:
        """Return the least share of each one's time in 16 bits: what multiplies no matrices stays as it is."""
        least: Floats = 1.0 - self.part * (1.0 - self._least_of_matrices())
        return least

    def _least_of_matrices(self) -> Floats:
        """Return the least share of the time of the products, by the roofline where work and peaks are known."""
        if self.peak is None:
            return np.full(len(self.row), UNKNOWN_RATIO)
        tflops, memory = self.peak.dense_tflops, self.peak.memory_tb_per_s
        half = tflops.get("bf16", tflops.get("fp16"))
        single = tflops.get("fp32")
        if half is None or single is None:
            return np.full(len(self.row), UNKNOWN_RATIO)
        slow = self.peak.without_tf32_tflops or single
        ratio = cache(partial(_ratio, fast=half, memory=memory, bytes_left=0.5))
        pairs = zip(self.work, self.simple.tolist(), strict=True)
        return np.array([ratio(work, slow if simple else single) for work, simple in pairs])

    def least_through_tf32(self) -> Floats | None:
        """Return the least share of each simple one's time through TF32; None where the device has no such path."""
        peak = self.peak
        if peak is None or peak.without_tf32_tflops is None:
            return None
        slow, fast, memory = peak.without_tf32_tflops, peak.dense_tflops["fp32"], peak.memory_tb_per_s
        return np.array([_ratio(work, slow, fast, memory, 1.0) for work in self.work])


@once
def known_work(of: ProgramCalls) -> Utilization:
    """Return what the operators of a recording compute, as far as their shapes were recorded."""
    return of.measured.utilisation or Utilization.of(of.view)


def _named(names: Sequence[str], codes: Codes, fits: Callable[[str], object]) -> Mask:
    """Mark the codes whose names fit."""
    fitting = np.zeros(len(names), dtype=bool)
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        fitting[code] = bool(fits(names[code]))
    return fitting[codes]


def _by_engine(view: RankView, program: Program) -> tuple[Floats, Mask, Mask]:
    """Return the share of each row in which a matrix engine works, where its type is known, and where that is fp32."""
    count, trace = len(program.device_row), view.trace
    if program.matrix is None:
        return np.ones(count), np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    device, units = trace.device, view.links.activations
    rows = np.flatnonzero(on_matrix_engine(trace) & (device.dtype >= 0) & (units.of_row >= 0))
    single = in_types(trace, SINGLE_TYPE)
    mine = units.of_row[program.device_row]
    known, in_single = among(mine, units.of_row[rows]), among(mine, units.of_row[rows[single[rows]]])
    return np.where(program.matrix > 0, program.matrix, 1.0), known, in_single


def on_matrix_engine(trace: Trace) -> Mask:
    """Mark the device rows of matrix engines."""
    engines = np.array([*(name == MATRIX_ENGINE for name in trace.engines), False], dtype=bool)
    found: Mask = engines[trace.device.engine]
    return found


def in_types(trace: Trace, types: re.Pattern[str]) -> Mask:
    """Mark the device rows whose type of data fits."""
    found: Mask = np.array([*(bool(types.match(name)) for name in trace.dtypes), False], dtype=bool)[trace.device.dtype]
    return found


def holding(known: Utilization, stop: Ints, operator: Ints) -> Ints:
    """Return which of the operators with known work each operator lies in, -1 for none."""
    if not len(known.position):
        return np.full(len(operator), -1)
    at = np.searchsorted(known.position, operator, side="right") - 1
    inside = (operator >= 0) & (at >= 0) & (operator < stop[known.position[np.maximum(at, 0)]])
    return np.where(inside, at, -1)


def _ratio(work: Work | None, slow: float, fast: float, memory: float, bytes_left: float) -> float:
    """Return the least time in the faster path over that in the slower one; peaks in 10^12 per second."""
    if work is None or work.bytes is None or not work.flops:
        return slow / fast
    now = max(work.flops / slow, work.bytes / memory)
    return min(1.0, max(work.flops / fast, bytes_left * work.bytes / memory) / now)
