"""Every rule for operators against a real recording of it, and its harmless twin that must stay silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import needs
import pytest

torch = needs.module("torch", "torch")

from graph_mode.recording import Apply, codes, record

X = torch.arange(24.0).reshape(6, 4) - 12
MASK = X > 0
INDEX = torch.tensor([0, 2, 2, 5])
REPEATS = torch.tensor([1, 2, 1, 1, 3, 1])


def _fill(x: torch.Tensor, where: torch.Tensor, value: object) -> torch.Tensor:
    y = x.clone()
    y[where] = value
    return y


DYNAMIC: dict[str, tuple[str, Callable[[torch.Tensor], object]]] = {
    "index by a mask": ("aten::index", lambda x: x[x > 0]),
    "rows by a mask": ("aten::index", lambda x: x[REPEATS > 1]),
    "where with one argument": ("aten::where", lambda x: torch.where(x > 0)),
    "nonzero": ("aten::nonzero", torch.nonzero),
    "argwhere": ("aten::argwhere", lambda x: torch.argwhere(x > 0)),
    "masked_select": ("aten::masked_select", lambda x: torch.masked_select(x, MASK)),
    "repeat_interleave by a tensor": ("aten::repeat_interleave", lambda x: x.repeat_interleave(REPEATS, 0)),
    "unique": ("aten::_unique2", torch.unique),
    "bincount": ("aten::bincount", lambda x: torch.bincount(INDEX)),
    "one_hot": ("aten::one_hot", lambda x: torch.nn.functional.one_hot(INDEX)),
    "a tensor stored by a mask": ("aten::index_put_", lambda x: _fill(x, MASK, torch.zeros(11))),
    "packed sequence": (
        "aten::_pack_padded_sequence",
        lambda x: torch.nn.utils.rnn.pack_padded_sequence(x[None].expand(2, 6, 4), torch.tensor([6, 3]), True),
    ),
}
READS: dict[str, tuple[str, Callable[[torch.Tensor], object]]] = {
    "item": ("aten::item", lambda x: x.sum().item()),
    "float": ("aten::item", lambda x: float(x.sum())),
    "bool": ("aten::is_nonzero", lambda x: bool(x.sum() > 0)),
    "equal": ("aten::equal", lambda x: torch.equal(x, x)),
    "allclose": ("aten::allclose", lambda x: torch.allclose(x, x)),
}
SAFE: dict[str, Callable[[torch.Tensor], object]] = {
    "index by integers": lambda x: x[INDEX],
    "where with three arguments": lambda x: torch.where(x > 0, x, -x),
    "a number stored by a mask": lambda x: _fill(x, MASK, 0.0),
    "masked_fill": lambda x: x.masked_fill(MASK, 1.0),
    "repeat_interleave by a number": lambda x: x.repeat_interleave(2, 0),
    "repeat_interleave of known size": lambda x: x.repeat_interleave(REPEATS, 0, output_size=9),
    "nonzero_static": lambda x: torch.nonzero_static(x > 0, size=4),
    "comparison with a number": lambda x: (x > 0.5) & (x <= 3),
    "cross entropy": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 3, 0, 1])),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_shapes_that_depend_on_data_are_found(tmp_path: Path, name: str):
    operator, function = DYNAMIC[name]
    model = Apply(function)
    part = record(tmp_path, lambda i: model(X), steps=3)
    rows = [o for o in part.obstacles if o.code == "HP301"]
    assert [(o.module, o.where, o.count, o.severity) for o in rows] == [
        ("Apply_0", f"forward, {operator}", 3, "blocker")
    ]
    assert rows[0].python_line is not None
    assert rows[0].python_line.startswith("graph_mode/")  # the innermost frame that is not of a library
    module = next(m for m in part.modules if m.module == "Apply_0")
    assert (module.capturable, "HP301" in module.blockers) == ("no", True)


@pytest.mark.parametrize("name", READS)
def test_values_that_reach_python_are_found(tmp_path: Path, name: str):
    operator, function = READS[name]
    model = Apply(function)
    part = record(tmp_path, lambda i: model(X), steps=3)
    assert [(o.code, o.where, o.count) for o in part.obstacles] == [("HP302", f"forward, {operator}", 3)]


@pytest.mark.parametrize("name", SAFE)
def test_their_harmless_twins_are_not(tmp_path: Path, name: str):
    model = Apply(SAFE[name])
    part = record(tmp_path, lambda i: model(X), steps=3)
    assert codes(part) == {}
    module = next(m for m in part.modules if m.module == "Apply_0")
    assert (module.capturable, module.signatures) == ("yes", 1)
    assert {"HP301", "HP302"} <= set(module.not_seen)


def test_random_numbers_are_a_notice(tmp_path: Path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    part = record(tmp_path, lambda i: model(X), steps=3)
    assert codes(part) == {"HP314": "harmless"}
    assert next(o.module for o in part.obstacles) == "Dropout_0"
    model.eval()
    (tmp_path / "eval").mkdir()
    assert codes(record(tmp_path / "eval", lambda i: model(X), steps=3)) == {}
