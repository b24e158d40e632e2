"""Which rows are of some kinds."""

import numpy as np

from hpuprof.model.arrays import any_of


def test_kinds_of_8_bits_are_told_apart():
    kinds = np.arange(-128, 128, dtype=np.int8)
    for chosen in ((), (1,), (0, 127), (-1, 5)):
        assert (any_of(kinds, chosen) == np.isin(kinds, list(chosen))).all()
        assert (any_of(kinds.astype(np.int64), chosen) == np.isin(kinds, list(chosen))).all()
