"""The compact form of a partial: exact, small, and plain about what it cannot read."""

import math
import pickle
from pathlib import Path
from typing import Annotated, get_args, get_origin

import msgspec
import pytest
from builder import reduce_file
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuprof.ingest.discover import discover
from hpuprof.model import partial_codec
from hpuprof.model.partial import RankPartial
from hpuprof.model.partial_codec import CodecError, PackedPartial, table_types

SAMPLES = ("hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_lazy_8_ranks", "cpu_1_rank", "hpu_hw_csv", "lightning_1_rank")


def bits(value):
    """A form in which 1 and 1.0, 0.0 and -0.0, a tuple and a list differ, and NaN equals itself."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, [bits(getattr(value, f)) for f in value.__struct_fields__]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [bits(v) for v in value]
    if isinstance(value, dict):
        return "dict", [(bits(k), bits(v)) for k, v in value.items()]
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value.hex()
    return type(value).__name__, value


@pytest.fixture(scope="module")
def partial(samples) -> RankPartial:
    return reduce_file(discover([samples / "hpu_g1_lazy"])[0][0])


@pytest.mark.parametrize("sample", SAMPLES)
def test_real_partials_come_back_to_the_bit(samples, sample):
    for file in discover([samples / sample])[0]:
        partial = reduce_file(file)
        text = PackedPartial.of(partial).to_bytes()
        again = PackedPartial.from_bytes(text)
        assert bits(again.unpack()) == bits(partial)
        assert PackedPartial.of(again.unpack()).to_bytes() == text, "equal partials give equal bytes"
        assert pickle.loads(pickle.dumps(again)) == again


INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200), st.integers(-(2**70), 2**70))
FLOATS = st.one_of(st.floats(), st.integers(-(2**53), 2**53).map(float), st.just(-0.0))


def _rows(row_type):
    """Strategy for rows of any table, from the types of its columns."""

    def column(hint):
        text = str(hint)
        base = FLOATS if "float" in text else INTEGERS if "int" in text else st.booleans() if "bool" in text else None
        base = st.text(max_size=6) if base is None else base
        return st.one_of(base, st.none()) if "None" in text else base

    plain = {}
    for field in msgspec.structs.fields(row_type):
        hint = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        # Nested columns are drawn by hypothesis from their type; scalars as widely as the codec has cases.
        nested = any(word in str(hint) for word in ("list", "dict", "tuple", "Struct", "."))
        plain[field.name] = st.from_type(hint) if nested else column(hint)
    return st.builds(row_type, **plain)


@pytest.mark.parametrize("name", table_types())
def test_tables_of_any_values_come_back(name):
    sample = discover([Path(__file__).resolve().parents[2] / "sample_traces" / "cpu_1_rank"])[0][0]
    plain = reduce_file(sample)

    @settings(max_examples=15)
    @given(st.lists(_rows(table_types()[name]), max_size=4))
    def check(rows):
        strange = msgspec.structs.replace(plain, **{name: rows})
        assert bits(PackedPartial.from_bytes(PackedPartial.of(strange).to_bytes()).unpack()) == bits(strange)

    check()


def test_every_table_of_a_partial_is_packed_as_a_table():
    fields = {f.name for f in msgspec.structs.fields(RankPartial)}
    assert fields - set(table_types()) >= {"file", "inside", "sound"}
    assert {"steps", "kernels", "diagnostics"} <= set(table_types())


def test_tables_are_read_one_by_one(partial):
    packed = PackedPartial.of(partial)
    assert packed.rows("steps") == len(partial.steps)
    assert packed.table("kernels") == partial.kernels
    lazy = packed.unpack(lazy=["kernels"])
    assert (len(lazy.kernels), list(lazy.kernels), lazy.kernels[0]) == (
        len(partial.kernels),
        partial.kernels,
        partial.kernels[0],
    )
    assert packed.file == partial.file
    with pytest.raises(AttributeError):
        _ = packed.no_such_field


def test_bytes_that_are_no_partial_are_refused(partial, monkeypatch):
    text = PackedPartial.of(partial).to_bytes()
    for broken in (b"", b"hpupart", text[:-1], b"x" + text, text + b"\0"):
        with pytest.raises(CodecError):
            PackedPartial.from_bytes(broken)
    monkeypatch.setattr(partial_codec, "CODEC_VERSION", partial_codec.CODEC_VERSION + 1)
    with pytest.raises(CodecError, match="version"):
        PackedPartial.from_bytes(text)


def test_damage_inside_a_table_is_told(partial):
    packed = PackedPartial.of(partial)
    packed._tables["steps"] = (packed.rows("steps"), b"\x78\x9c damaged")
    with pytest.raises(CodecError, match="damaged"):
        packed.table("steps")


def test_a_table_with_other_columns_is_refused(partial, monkeypatch):
    packed = PackedPartial.of(partial)
    text = packed.to_bytes()
    packed._tables["steps"] = (packed.rows("kernels"), packed._tables["kernels"][1])
    with pytest.raises(CodecError, match="damaged"):
        packed.table("steps")
    monkeypatch.setattr(partial_codec, "_columns", lambda: 1)
    with pytest.raises(CodecError, match="other columns"):
        PackedPartial.from_bytes(text)


def test_as_many_rows_as_said(partial):
    packed = PackedPartial.of(partial)
    packed._tables["steps"] = (packed.rows("steps") + 1, packed._tables["steps"][1])
    with pytest.raises(CodecError, match="rows in the table steps"):
        packed.table("steps")


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "size_mb"), [("cuda", 30), ("hpu_g1", 20)])
def test_a_hundred_steps_take_less_than_200_kB(tmp_path, dialect, size_mb):
    from benchmarks.large import Spec, write_trace

    path = tmp_path / "trace.json"
    made = write_trace(Spec(dialect=dialect, size_mb=size_mb, steps=100), path)
    partial = reduce_file(discover([path])[0][0])
    assert made.rows > 50_000
    assert len(partial.steps) == 100
    assert len(PackedPartial.of(partial).to_bytes()) <= 200_000
