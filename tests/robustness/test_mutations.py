"""A dozen mutated files through every command; `python tests/fuzz.py --minutes 10` runs more."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from fuzz import faults, mutants
from limited import Limited


def test_no_mutant_ends_in_anything_but_an_answer(limited: Limited, tmp_path: Path):
    for number, (name, data) in enumerate(islice(mutants(2026), 12)):
        place = tmp_path / str(number)
        place.mkdir()
        assert [fault.kind for fault in faults(limited, name, data, place)] == []
