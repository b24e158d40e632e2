"""Whether a part of the job is slow beyond chance: a permutation test before anybody is named.

If all parts of a kind (ranks, hosts, stages, groups, links) are alike, then which of them did which part of a step's
work is chance. So their work is exchanged at random within blocks of steps, and the largest mean excess over the other
parts is compared with what it was before. Blocks are as long as what a part does in one step shows of the next. Sets
of ranks are exchanged as a whole: what their ranks have in common within a step, such as the length of a batch, is no
evidence.

Of n parts in k blocks the least probability is n ** (1 - k). Kinds that could not be decided by it are not tested, and
the others share `LEVEL` [1].

[1] R. E. Tarone, A modified Bonferroni method for discrete data, Biometrics 46 (1990), pages 515 to 522.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, median
from hpuprof.ranks.suspects import Suspect

LEVEL = 0.05
"""How often somebody may be named in a job of which no part is slow."""
OUTLYING = 3.0
"""Excess of a step from which on more of it is no more evidence, as a multiple of the usual spread between the parts: a
long pause in one step shows nothing of the others. By judgment, as for outliers of a normal distribution."""
_EXACT = 20_000
"""Arrangements up to which all of them are counted."""
_DRAWS = (400, 160_000, 20_000)
"""Random arrangements: at least, times parts, at most. 20,000 of 8 parts take 10 ms a block, 2,500 of 64 the same."""
_MOST_BLOCKS = 1_000
_FINEST = 1e-4
"""Spread between parts that counts as none, as a share of the work of a step: clocks are no better."""


class Parts(Struct, frozen=True, eq=False):
    """Parts of the job of one kind, and by how much each works longer than the others do, of the usual spread.

    `excess`: shape `(parts, steps)`; NaN where it is unknown. `suspects`: None for parts that are only compared with.
    `block`: steps of a block, see `block_length`.
    """

    suspects: Sequence[Suspect | None]
    excess: Floats
    block: int


class Chance(Struct, frozen=True):
    """How likely chance alone makes a part of its kind as slow. `needed`: steps that would decide; 0: those at hand."""

    probability: float
    level: float
    needed: int

    @property
    def excluded(self) -> bool:
        """Whether it is slow beyond chance."""
        return not self.needed and self.probability <= self.level


def spread(work: Floats) -> Floats:
    """Return by how much each row exceeds the median row, step by step, of the usual spread; shape `(rows, steps)`."""
    known = np.isfinite(work)
    out = np.full(work.shape, np.nan)
    some = known.sum(axis=0) > 1
    if not some.any():
        return out
    usual = np.nanmedian(work[:, some], axis=0)
    over = work[:, some] - usual
    finest = _FINEST * float(np.abs(usual).mean())
    scale = max(1.4826 * float(median(np.abs(over[np.isfinite(over)]))), finest)
    out[:, some] = np.clip(over / scale if scale > 0 else over, -OUTLYING, OUTLYING)
    return out


def chances_of(kinds: Sequence[Parts]) -> dict[Suspect, Chance]:
    """Return for each suspect how likely it is slow by chance; see the module."""
    blocks = [_blocks(parts.excess, parts.block) for parts in kinds]
    sizes = [(len(parts.suspects), of.shape[1]) for parts, of in zip(kinds, blocks, strict=True)]
    shared = _shared(sizes)
    out: dict[Suspect, Chance] = {}
    for i, (parts, of, (count, k)) in enumerate(zip(kinds, blocks, sizes, strict=True)):
        if count < 2:
            continue
        level, needed = LEVEL / shared, 0
        if least(count, k) > level:
            enough = next((n for n in range(k + 1, _MOST_BLOCKS) if _decides(sizes, i, n)), 0)
            needed = enough * parts.block
        chances = _probabilities(of) if not needed else np.ones(count)
        for suspect, p in zip(parts.suspects, chances.tolist(), strict=True):
            if suspect is not None and (suspect not in out or out[suspect].probability > p):
                out[suspect] = Chance(p, level, needed)
    return out


def least(parts: int, blocks: int) -> float:
    """Return the least probability that parts alike allow: of all arrangements those that put one together again."""
    return float(parts) ** (1 - blocks) if parts > 1 and blocks else 1.0


def _shared(sizes: Sequence[tuple[int, int]]) -> int:
    """Return among how many kinds the level is shared: those that could be decided if it is."""
    found = [least(*size) for size in sizes]
    tested = ((m, sum(p <= LEVEL / m for p in found)) for m in range(1, len(found) + 2))
    return next(m for m, testable in tested if testable <= m)


def _decides(sizes: Sequence[tuple[int, int]], kind: int, blocks: int) -> bool:
    longer = [(count, max(k, blocks)) for count, k in sizes]
    return least(sizes[kind][0], blocks) <= LEVEL / _shared(longer)


def _blocks(excess: Floats, length: int) -> Floats:
    """Return the mean excess of each part by block of steps, over the mean of all parts; shape `(parts, blocks)`."""
    steps = _centered(excess)
    count = steps.shape[1] // length
    if not count:
        return steps[:, :0]
    return np.stack([part.mean(axis=1) for part in np.array_split(steps, count, axis=1)], axis=1)


def _centered(excess: Floats) -> Floats:
    """Return the excess over the mean of all parts in the steps in which it is known of any; 0 where it is unknown."""
    known = np.isfinite(excess)
    some = known.any(axis=0)
    steps = np.where(known, excess, 0.0)[:, some]
    centered: Floats = steps - steps.mean(axis=0) if len(steps) else steps
    return centered


def block_length(excess: Floats) -> int:
    """Return how many steps a block has: for as long as a part's excess shows of its next one, its mean left out.

    That is the time over which autocorrelation adds up, (1 + r) / (1 - r) steps for one of r from step to step. Of few
    steps r comes out too low by 1 / steps; below twice its standard error it is none.
    """
    steps = _centered(excess)
    parts, count = steps.shape
    if count < 3:
        return 1
    own = steps - steps.mean(axis=1, keepdims=True)
    power = float(np.square(own).sum())
    if not power > 0:
        return 1
    r = float((own[:, 1:] * own[:, :-1]).sum()) / power * count / (count - 1) + 1 / count
    if r <= 2 / math.sqrt(parts * (count - 1)):
        return 1
    return int(min(count, round((1 + r) / max(1 - r, 1 / count))))


def _probabilities(blocks: Floats) -> Floats:
    """Return how likely the largest mean of any part is at least that of each one; shape `(parts,)`."""
    count, k = blocks.shape
    own = blocks.mean(axis=1)
    arrangements = math.factorial(count) ** (k - 1) if count < 10 else _EXACT + 1
    exact = arrangements <= _EXACT
    largest = (_all(blocks) if exact else _some(blocks)).max(axis=1) / k
    reached = (largest[None, :] >= own[:, None] - 1e-9).sum(axis=1)
    probabilities: Floats = reached / len(largest) if exact else (reached + 1) / (len(largest) + 1)
    return probabilities


def _all(blocks: Floats) -> Floats:
    """Return the sums over blocks of all arrangements; the first block stays. Shape `(arrangements, parts)`."""
    orders = np.array(list(permutations(range(len(blocks)))), dtype=np.int64)
    sums = blocks[:, 0][None, :]
    for b in range(1, blocks.shape[1]):
        sums = (sums[:, None, :] + blocks[orders, b]).reshape(-1, len(blocks))
    return sums


def _some(blocks: Floats) -> Floats:
    """Return the same of random arrangements, the same ones in each run."""
    count = len(blocks)
    fewest, cells, most = _DRAWS
    draws = min(most, max(fewest, cells // count))
    random = np.random.default_rng(0)
    sums = np.tile(blocks[:, 0], (draws, 1))
    for b in range(1, blocks.shape[1]):
        sums += random.permuted(np.tile(blocks[:, b], (draws, 1)), axis=1)
    return sums
