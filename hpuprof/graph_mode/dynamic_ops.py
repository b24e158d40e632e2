"""Operators that a captured graph cannot hold: rules as data, and the search for matches.

An operator's name is rarely enough: `aten::index` gathers by integers (harmless) or by a boolean mask (a new shape
every time), and only the latter has an `aten::nonzero` inside. Each rule lists the inner operators that make it apply.

Sources: *tags* are PyTorch's own operator tags (`torch.Tag.dynamic_output_shape`, `data_dependent_output`,
`nondeterministic_seeded`, torch 2.13); *inductor* is `torch/_inductor/utils.py`, FORBIDDEN_CUDAGRAPH_OPS; *trace* means
seen in recordings of torch 2.13 (the tests record each one again); *vendor* is Habana's "HPU Graphs for Training".
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints

_READS = frozenset({"aten::_local_scalar_dense", "aten::item"})
_NONZERO = frozenset({"aten::nonzero", "aten::nonzero_numpy"})


def _aten(text: str) -> frozenset[str]:
    return frozenset(name if "::" in name else f"aten::{name}" for name in text.split())


class OpRule(Struct, frozen=True):
    """Matching operators: one of `names`, with an operator of `inside` somewhere below it (empty: no condition).

    `what` completes "`aten::index` …"; `code` is the obstacle (see `obstacle_codes`).
    """

    code: str
    names: frozenset[str]
    what: str
    inside: frozenset[str] = frozenset()


SHAPE_AND_READ_RULES: tuple[OpRule, ...] = (
    # tags (index); trace: an integer index has no nonzero inside; a mask with one value becomes masked_fill_
    OpRule(
        "HP301",
        _aten("index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put"),
        "by a boolean mask: the number of elements depends on data",
        _NONZERO,
    ),
    # vendor (`tmp[torch.where(tmp > 0)]`); trace: the form with three inputs has no nonzero inside
    OpRule("HP301", _aten("where"), "with the condition alone: the number of indices depends on data", _NONZERO),
    # tags, trace
    OpRule("HP301", _aten("one_hot"), "reads the largest class back to size or check its output", _READS),
    # tags; trace: with a number, or with output_size, nothing is read
    OpRule(
        "HP301", _aten("repeat_interleave"), "with a tensor of repeats: the output's length depends on data", _READS
    ),
    # trace
    OpRule("HP301", _aten("histc"), "reads its range back", _READS),
    # tags (dynamic_output_shape); masked_scatter, histogram, nms and _pack_padded_sequence read sizes from data
    OpRule(
        "HP301",
        _aten(
            "nonzero nonzero_numpy argwhere masked_select _unique _unique2 unique_dim unique_consecutive "
            "unique_dim_consecutive bincount linalg_lstsq _ctc_loss masked_scatter histogram torchvision::nms "
            "_pack_padded_sequence"
        ),
        "has an output whose shape depends on data",
    ),
    # inductor
    OpRule(
        "HP319",
        _aten(
            "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional _assert_scalar "
            "fbgemm::dense_to_jagged fbgemm::jagged_to_padded_dense "
            "higher_order::run_and_save_rng_state higher_order::run_with_rng_state"
        ),
        "must not be captured",
    ),
    # trace
    OpRule("HP302", _aten("embedding_renorm_"), "copies norms to the host (max_norm is set)", _READS),
    # tags (data_dependent_output); bool(tensor) runs is_nonzero, float(tensor) item
    OpRule("HP302", _aten("item _local_scalar_dense is_nonzero equal allclose"), "returns a value to Python"),
)

RANDOM = _aten(
    "bernoulli bernoulli_ native_dropout _fused_dropout rand rand_like randn randn_like randint randint_like randperm "
    "random_ normal normal_ uniform_ exponential_ geometric_ cauchy_ log_normal_ multinomial poisson _standard_gamma "
    "binomial _sample_dirichlet rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_functional"
)
"""Operators that draw random numbers. Source: tags (nondeterministic_seeded) without those that draw only on request
(attention, recurrent layers, and `dropout`, which draws through one of these when training)."""

NOISE = _aten(
    "empty empty_like empty_strided new_empty resize_ as_strided as_strided_ detach detach_ alias lift_fresh "
    "resolve_conj resolve_neg set_ view_as_real contiguous zero_ fill_ to _to_copy copy_ record_stream is_pinned"
) | frozenset({"detach", "detach_", "record_param_comms"})
"""Operators whose presence depends on layouts, types and allocation, not on the program's path. (Rounding to µs
sometimes also moves the `zero_` inside a short `zeros` out of it.)"""

COMMON_READS = _READS | _aten("is_nonzero equal allclose")
"""Operators that hand a value to Python: an obstacle of its own (HP302)."""


class OpHits(Struct, frozen=True, eq=False):
    """Operators that match a rule: positions in links.nesting, ascending, and the rule's index; none inside another."""

    position: Ints
    rule: Ints

    @property
    def dynamic(self) -> Ints:
        """Positions of operators whose output shape depends on data."""
        return self.position[[SHAPE_AND_READ_RULES[i].code == "HP301" for i in self.rule.tolist()]]


def find_operators(view: RankView) -> OpHits:
    """Find operators that match one of `SHAPE_AND_READ_RULES`; of nested hits only the outermost remains."""
    trace, nesting = view.trace, view.links.nesting
    name = trace.host.name[nesting.rows]
    named = [trace.operators_named(rule.names.__contains__) for rule in SHAPE_AND_READ_RULES]
    some = np.flatnonzero(np.any(named, axis=0)[name])
    found = np.full(len(some), -1, dtype=np.int64)
    for index in range(len(SHAPE_AND_READ_RULES) - 1, -1, -1):
        rule = SHAPE_AND_READ_RULES[index]
        fits = named[index][name[some]]
        if rule.inside and fits.any():
            below = np.concatenate([[0], np.cumsum(trace.operators_named(rule.inside.__contains__)[name])])
            fits &= below[nesting.stop[some]] > below[some + 1]
        found[fits] = index
    some, found = some[found >= 0], found[found >= 0]
    outermost = some >= np.maximum.accumulate(np.append(0, nesting.stop[some]))[:-1]  # what is inside follows directly
    return OpHits(some[outermost], found[outermost])
