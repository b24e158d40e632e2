"""Tables as files: every table in every format, pieces, types, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from importlib.util import find_spec

import needs
import pytest
from builder import TraceBuilder
from sample_reports import report_of

import hpuprof
from hpuprof.analysis.slices import slice_pieces
from hpuprof.exporting import SLICES, TABLE_NAMES, all_slices, row_type
from hpuprof.model.slice_table import SliceRow
from hpuprof.render.formats import clean
from hpuprof.render.table_files import CsvWriter, kinds

needs_pyarrow = pytest.mark.usefixtures("pyarrow")


@pytest.fixture
def pyarrow():
    return needs.module("parquet", "pyarrow")


def source_of(table, folder):
    """Traces for three tables, and for the others a report that is there: reading traces again shows nothing new."""
    return folder if table in (SLICES, "steps", "diagnostics") else report_of(folder.name)


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_csv_and_json_hold_the_same_table(samples, tmp_path, table):
    source = source_of(table, samples / "hpu_g1_lazy")
    with hpuprof.export(source, table, tmp_path / "t.csv").open(newline="") as handle:
        cells = list(csv.DictReader(handle))
    rows = json.loads(hpuprof.export(source, table, tmp_path / "t.json").read_text())
    assert len(cells) == len(rows)
    assert table in ("diagnostics", SLICES) or len(rows) == len(getattr(report_of("hpu_g1_lazy").data, table))
    for cell, row in zip(cells, rows, strict=True):
        assert list(cell) == list(row) == list(row_type(table).__struct_fields__)
        for name, value in row.items():
            text = (
                ""
                if value is None
                else clean(value)
                if isinstance(value, str)
                else json.dumps(value, ensure_ascii=False)
            )
            assert cell[name] == text


@needs_pyarrow
@pytest.mark.parametrize("table", TABLE_NAMES)
def test_parquet_holds_the_same_table_with_types(samples, tmp_path, table):
    from pyarrow import parquet

    source = source_of(table, samples / "hpu_g3_lazy_8_ranks")
    rows = json.loads(hpuprof.export(source, table, tmp_path / "t.json").read_text())
    found = parquet.read_table(hpuprof.export(source, table, tmp_path / "t.parquet"))
    names = {int: "int64", float: "double", bool: "bool", str: "string", object: "string"}
    assert {f.name: str(f.type) for f in found.schema} == {n: names[k] for n, k in kinds(row_type(table)).items()}
    nested = [n for n, k in kinds(row_type(table)).items() if k is object]
    for got, row in zip(found.to_pylist(), rows, strict=True):
        assert {n: json.loads(v) if n in nested else v for n, v in got.items()} == row


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow_names_the_extra(samples, tmp_path):
    with pytest.raises(hpuprof.MissingDependencyError) as caught:
        hpuprof.export(samples / "cpu_1_rank", "steps", tmp_path / "t.parquet")
    assert "pip install 'pyarrow>=" in caught.value.hint


def test_slices_by_hand(tmp_path):
    b = TraceBuilder().step(0, 0, 100).step(1, 100, 100).host("aten::add", 10, 20, **{"Input Dims": [[2], [3]]})
    b.kernel("k", 150, 5, launch=15).host("late", 300, 1)
    rows = json.loads(hpuprof.export(b.write(tmp_path / "rank7.json"), "slices", tmp_path / "s.json").read_text())
    keep = ("rank", "side", "start_ns", "dur_ns", "step", "name", "kind", "activity", "engine", "correlation", "shape")
    assert [tuple(r[k] for k in keep) for r in rows if not r["name"].startswith("Profiler")] == [
        (7, "host", 10_000, 20_000, 0, "aten::add", "op", None, None, None, "[[2], [3]]"),
        (7, "host", 15_000, 2_000, 0, "cudaLaunchKernel", "runtime", "launch", None, 1, None),
        (7, "host", 300_000, 1_000, None, "late", "op", None, None, None, None),
        (7, "device", 150_000, 5_000, 1, "k", "compute", None, "compute", 1, None),
    ]


def test_pieces_are_bounded_and_add_up(tmp_path):
    b = TraceBuilder()
    for i in range(50):
        b.host("aten::add", i, 0.5)
    trace = b.trace(tmp_path)
    pieces = list(slice_pieces(trace, rows=16))
    assert [len(p["side"]) for p in pieces] == [16, 16, 16, 2]
    assert [ns for p in pieces for ns in p["start_ns"]] == trace.host.start.tolist()
    identity = {"rank", "stage", "action", "window", "path"}
    assert set(pieces[0]) == set(SliceRow.__struct_fields__) - identity


def test_slices_come_file_by_file(samples):
    run = hpuprof.load(samples / "hpu_g3_lazy_8_ranks")
    seen = []
    pieces = all_slices(run, progress=seen.append)
    first = next(pieces)
    assert set(first["path"]) == {run.files[0].name}
    assert seen == []
    list(pieces)
    assert seen == [f.name for f in run.files]


def test_unknown_tables_and_reports_without_slices(samples, tmp_path):
    with pytest.raises(hpuprof.UsageError, match="no table 'kernel'") as caught:
        hpuprof.export(samples / "cpu_1_rank", "kernel", tmp_path / "t.csv")
    assert "did you mean kernels" in caught.value.hint
    assert all(name in caught.value.hint for name in TABLE_NAMES)
    with pytest.raises(hpuprof.InputError, match="holds no slices"):
        hpuprof.export(report_of("cpu_1_rank"), "slices", tmp_path / "t.csv")
    with pytest.raises(hpuprof.OutputError, match="no such directory"):
        hpuprof.export(samples / "cpu_1_rank", "steps", tmp_path / "no" / "t.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_no_half_file(samples, tmp_path):
    (tmp_path / "bad.json").write_text('{"traceEvents": [')
    with pytest.raises(hpuprof.InputError):
        hpuprof.export(tmp_path / "bad.json", "slices", tmp_path / "t.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.json"]


def test_cells_of_csv_are_neither_formulas_nor_orders(tmp_path):
    out = io.StringIO()
    names = ["=1+1", "+x", "-x", "@x", "\x1b[31mx", "::error::x", "a##[group]b", "aten::mm", "1-2", ""]
    CsvWriter(out, ["name", "count"]).write({"name": names, "count": [-1] * len(names)})
    assert out.getvalue().splitlines() == [
        "name,count", "'=1+1,-1", "'+x,-1", "'-x,-1", "'@x,-1", "\\x1b[31mx,-1", "∶:error::x,-1", "a♯#[group]b,-1",
        "aten::mm,-1", "1-2,-1", ",-1",
    ]  # fmt: skip
