"""The native scanner reads what Python reads: the same tables to the byte, the same diagnostics, the same offsets."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from itertools import islice
from pathlib import Path

import msgspec
import needs
import numpy as np
import pytest
import scan_paths

from hpuprof import native
from hpuprof.errors import ConfigError
from hpuprof.ingest.recipe_rows import RECIPE
from hpuprof.ingest.scan import RowScanner
from hpuprof.ingest.source import PIECE_BYTES
from hpuprof.ingest.wire import Event, ExactEvent

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("sample_traces", "tests/cases", "tests/corpus")
KEPT = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*")) if p.name.endswith((".json", ".json.gz"))]
TRACES = [p for p in KEPT if ".expected." not in p.name]


@pytest.fixture(autouse=True)
def built():
    return native.scanner() or needs.absent("native", "the native scanner is not built")


def scanned(*rows: str, exact: bool = False):
    scan = native.scanner()
    decoder = msgspec.json.Decoder(list[ExactEvent] if exact else list[Event])
    return RowScanner(scan, exact=exact).scan(",".join(rows).encode("utf-8", "surrogateescape"), decoder)


@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 3000])
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_samples_cases_and_hostile_files(path: Path, piece_bytes: int):
    assert scan_paths.differences(path, piece_bytes=piece_bytes) == []


@pytest.mark.parametrize("path", scan_paths.real(), ids=lambda p: p.name)
def test_traces_of_other_people(path: Path):
    assert scan_paths.differences(path) == []


def test_mutants(tmp_path: Path):
    path = tmp_path / "t.json"
    for i, data in enumerate(islice(scan_paths.mutants(seed=17), 300)):
        path.write_bytes(data)
        assert scan_paths.differences(path, piece_bytes=(PIECE_BYTES, 2048)[i % 2]) == [], data


@pytest.mark.parametrize("recipe", ["2", "-1", "0", "null", '"x"'])
@pytest.mark.parametrize("recipe_first", [True, False])
def test_rows_of_a_recipe_and_a_graph(recipe_first: bool, recipe: str, tmp_path: Path):
    """A row with both is of the recipe, in whichever order they stand."""
    both = [f'"recipeId": {recipe}', '"graph id": 1']
    row = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 6, "dur": 1, "args": {"stream": 7, %s}}'
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + row % ", ".join(both if recipe_first else both[::-1]) + "]}")
    assert scan_paths.differences(path) == []


@pytest.mark.parametrize(
    "sample", [p for p in TRACES if "sample_traces" in p.parts and "synapse" not in p.name], ids=lambda p: p.name
)
def test_samples_are_read_by_the_scanner(sample: Path, monkeypatch):
    """Most of each sample is plain: else the scanner would be there and do nothing."""
    read = {True: 0, False: 0}
    take = RowScanner.rows

    def counted(self, found, text, decoder):
        rows = take(self, found, text, decoder)
        read[rows is not None] += len(text)
        return rows

    monkeypatch.setattr(RowScanner, "rows", counted)
    scan_paths.said(sample, native=True, piece_bytes=20_000)
    if sample.name != "manifest.json":
        assert read[True] > 9 * read[False] > -1


ROW = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": "main", "ts": %s, "dur": %s, "args": %s}'


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("5", 5000),
        ("-5.25", -5250),
        ("0.0005", 0),
        ("0.0015", 2),
        ("1.0005", 1000),
        ("8796093022206.75", 8796093022206750),
    ],
)
def test_stamps_are_rounded_as_doubles_are(written, ns):
    assert scanned(ROW % (written, 1, "null")).slices.stamps()[0].tolist() == [ns]


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00050001", 1),
        ("-1.9995", -2000),
    ],
)
def test_exact_stamps_are_rounded_from_their_digits(written, ns):
    assert scanned(ROW % (written, 1, "{}"), exact=True).slices.stamps()[0].tolist() == [ns]


def test_columns_by_hand():
    rows = scanned(
        ROW
        % (
            1.5,
            2,
            '{"correlation": "12", "graph id": 3, "External id": -3, "bytes": null, "Input Dims": [[2, 3], []], "x": {"y": [1e-5]}}',
        ),
        '{"ph": "s", "id": 1, "ts": 1}',
        ' {"name": "M\\u00e9", "ph": "X", "args": {"recipeId": 5}, "dur": null}\n',
        '{"ph": "M", "name": "process_name", "args": {"name": "µ"}}',
    )
    slices = rows.slices
    assert (len(rows), len(slices), rows.flows, rows.others.kinds()[0][0].args.name) == (4, 2, 1, "µ")
    assert [slices.numbers(n).tolist() for n in ("correlation", "external_id", "bytes", "graph_id")] == [
        [12, -1],
        [-3, -1],
        [-1, -1],
        [3, -1],
    ]
    recipes = native_interner()
    assert (slices.keys(RECIPE, recipes).tolist(), list(recipes)) == ([-1, 0], [("5", "", "")])
    assert [mask.tolist() for _, mask, *_ in (slices.stamps(), slices.durations())] == [[True, False], [True, False]]
    names, inputs, tracks = {}, {}, {}
    for codes, take in ((names, lambda c: slices.words("name", c)), (inputs, slices.inputs), (tracks, slices.tracks)):
        take(interner := native_interner())
        codes.update(interner)
    assert names == {"aten::mm": 0, "Mé": 1}
    assert list(inputs) == [b"[[2, 3], []]\0\0\0\0\0"]
    assert tracks == {("7", "main"): 0, ("None", "None"): 1}


def test_rows_of_a_kind_are_decoded_once():
    mark = '{"ph": "%s", "cat": "user_annotation", "name": "%s", "pid": 1, "tid": 2, "ts": %d}'
    memory = (
        '{"ph": "i", "name": "[memory]", "ts": 7.5, "args": {"Device Type": 1, "Bytes": %d, "Total Allocated": %d}}'
    )
    counter = '{"ph": "C", "name": "memory", "ts": 9, "args": {"resident": 5, "limit": 8}}'
    marks = [mark % (phase, name, time) for time, (phase, name) in enumerate(("Ba", "Bb", "Eb", "Bb", "Eb", "Ea"))]
    rest = scanned(*marks, memory % (64, 512), memory % (-64, 448), counter).others
    events, kind = rest.kinds()
    assert [event.ph + event.name for event in events] == ["Ba", "Bb", "Eb", "Ea", "i[memory]", "Cmemory"]
    assert kind.tolist() == [0, 1, 2, 1, 2, 3, 4, 4, 5]
    assert rest.stamps()[0].tolist() == [0, 1000, 2000, 3000, 4000, 5000, 7500, 7500, 9000]
    assert [column[-3:].tolist() for column in rest.samples()] == [[1, 1, 0], [64, -64, 0], [512, 448, 5], [-1, -1, 8]]


def test_samples_that_are_no_integers_are_left_to_python():
    """They, and no slice beside them."""
    memory = '{"ph": "i", "name": "[memory]", "ts": 7, "args": {"Bytes": 1.5, "Total Allocated": 512}}'
    rows = scanned(ROW % (1, 1, "{}"), memory, '{"ph": "M", "name": "process_name"}')
    assert (type(rows.others).__name__, len(rows.others), len(rows.slices)) == ("EventOthers", 2, 1)
    assert rows.others.where(np.array([True, False])).samples().delta.tolist() == [1]


def test_collectives_alike_are_described_once():
    args = '{"Collective name": "allreduce", "In msg nelems": %d, "dtype": "Float"}'
    described = []

    def note(name, args):
        described.append((name, args.in_elements))
        return len(described)

    slices = scanned(*(ROW % (1, 1, args % n) for n in (8, 8, 9)), ROW % (1, 1, '{"Input Dims": [[3]]}')).slices
    assert slices.notes([0, 1, 2, 3], [5, 5, 5, 6], note) == [1, 1, 2, 3]
    assert slices.notes([1, 0], [6, 5], note) == [4, 1]
    assert described == [(5, 8), (5, 9), (6, -1), (6, 8)]


def native_interner():
    from hpuprof.ingest.columns import Interner

    return Interner()


@pytest.mark.parametrize(
    "row",
    [
        ROW % ("true", 1, "{}"), ROW % ('"1"', 1, "{}"), ROW % ("1e3", 1, "{}"), ROW % ("8796093022208.5", 1, "{}"), ROW % (1, "9e15", "{}"),
        ROW % (1, 1, "[]"), ROW % (1, 1, '{"correlation": 1.5}'), ROW % (1, 1, '{"correlation": [1]}'), ROW % (1, 1, '{"a": 01}'),
        ROW % (1, 1, '{"a\\t": 1}'), ROW % (1, 1, '{"a": "\x01"}'), ROW % (1, 1, '{"a": "\udcff"}'), ROW % (1, 1, '{"a": "\\x"}'),
        ROW % (1, 1, '{"a": ' + "[" * 70 + "]" * 70 + "}"), ROW % (1, 1, '{"a": 1,}'), ROW % (1, 1, '{"a": 1e999}'), ROW % (1, 1, "{}, \"ts\": 2"),
        "{", "{}}", "[]", "1", '{"ph": ""}', '{"ph": "XX"}', '{"ph": 5}', '{"name": [1]}', '{"ph": "C", "ts": true}', ROW % (1, 1, "{}") + ",", "\0",
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_python(row):
    assert scanned(row) is None


def test_late_stamps_beside_decimals_are_left_to_python():
    """Together they make the file be read again with exact stamps."""
    late, decimal = ROW % ("8796093022208", 1, "{}"), ROW % ("1.5", 1, "{}")
    assert scanned(late, late) is not None
    assert scanned(late, decimal) is None


def test_texts_keep_their_codes_from_piece_to_piece():
    scan, decoder = RowScanner(native.scanner(), exact=False), msgspec.json.Decoder(list[Event])
    names, found = native_interner(), []
    rng = random.Random(3)
    for _ in range(20):
        piece = [f"n{rng.randrange(5000)}" for _ in range(400)]
        text = ",".join(json.dumps({"ph": "X", "ts": 1, "dur": 1, "name": name}) for name in piece)
        found += zip(piece, scan.scan(text.encode(), decoder).slices.words("name", names).tolist(), strict=True)
    assert dict(found) == dict(names)
    assert list(names) == list(dict.fromkeys(name for name, _ in found))


def test_python_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("HPUPROF_SCAN", "python")
    assert native.scanner() is None
    monkeypatch.setenv("HPUPROF_SCAN", "fast")
    with pytest.raises(ConfigError, match="HPUPROF_SCAN is 'fast'"):
        native.scanner()


def test_a_report_does_not_tell_how_it_was_read(tmp_path: Path):
    """Also where nothing is built; `inspect` and `--version` say it."""
    said = set()
    installed = str(Path(native.__file__).parents[1])  # where the native part is, which a checkout need not have
    for setting in ({"HPUPROF_NATIVE": "require"}, {"HPUPROF_SCAN": "python"}, {"HPUPROF_NATIVE": "off"}):
        environment = {**os.environ, "HPUPROF_CACHE": "off", "PYTHONPATH": installed, **setting}
        ask = [sys.executable, "-m", "hpuprof", "inspect", "--json", str(ROOT / "sample_traces" / "hpu_g2_eager")]
        done = subprocess.run(ask, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        said.add(done.stdout)
        assert ("read with Python" in done.stderr) == ("require" not in setting.values())
    assert len(said) == 1


@pytest.mark.parametrize("how", ["-DHPUPROF_FAST", "-DHPUPROF_PORTABLE"])
def test_nothing_is_read_or_written_past_an_end(how, tmp_path: Path):
    """Mutated rows under AddressSanitizer and UndefinedBehaviorSanitizer."""
    compiler = shutil.which("g++") or needs.absent("native", "needs g++")
    program = tmp_path / "check"
    sources = [Path(__file__).parent / "check_scanner.cpp", ROOT / "native" / "row_scanner.cpp", f"-I{ROOT / 'native'}"]
    flags = [
        how,
        "-std=c++17",
        "-g",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    built = subprocess.run(
        [compiler, *flags, *sources, "-o", program], check=False, capture_output=True, text=True, timeout=300
    )
    if "cannot find -lasan" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(Path(__file__).parent / "scanner_corpus.zip") as corpus:  # what `make fuzz` begins with
        corpus.extractall(tmp_path / "corpus")
    files = [p for p in TRACES if p.suffix == ".json"]
    done = subprocess.run(
        [program, *files, *sorted((tmp_path / "corpus").iterdir())],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    scans, plain = map(int, done.stdout.split())
    assert scans >= 400_000
    assert plain > scans / 20


def test_only_bytes_are_scanned():
    scan = native.scanner()
    with pytest.raises(TypeError):
        scan(bytearray(b"{}"), False)  # may change meanwhile
    assert np.frombuffer(scan(b"", False)[0], np.int64).size == 0
