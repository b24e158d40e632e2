"""How often a file is read to know what it is."""

import pytest

from hpuprof.ingest import read as reader
from hpuprof.ingest.decode import EventStream


@pytest.fixture
def streams(monkeypatch):
    """Whether stamps were exact, for each time that a file was read."""
    found: list[bool] = []

    class Counted(EventStream):
        def __init__(self, source, *, exact, scanner):
            found.append(exact)
            super().__init__(source, exact=exact, scanner=scanner)

    monkeypatch.setattr(reader, "EventStream", Counted)
    return found


@pytest.mark.parametrize(
    ("stamps", "apart_ns", "padding", "passes"),
    [
        ("1694128201545123.456 1694128201545125.250", 1794, 0, [True]),
        ("12.5 14.25", 1750, 0, [False]),
        ("1694128201545123 1694128201545125", 2000, 0, [False]),
        ("1694128201545123.456 1694128201545125.250", 1794, 70_000, [False, True]),
    ],
    ids=["long with decimals", "short", "long integers", "behind a long header"],
)
@pytest.mark.parametrize("scan", ["auto", "python"])
def test_a_file_is_read_once_with_the_stamps_that_it_has(
    tmp_path, monkeypatch, streams, stamps, apart_ns, padding, passes, scan
):
    monkeypatch.setenv("HPUPROF_SCAN", scan)
    row = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 1, "ts": %s}'
    rows = ", ".join(row % stamp for stamp in stamps.split())
    path = tmp_path / "t.json"
    path.write_text(f'{{"header": "{"x" * padding}", "traceEvents": [{rows}]}}')
    assert reader.read_trace(path).host.start.tolist() == [0, apart_ns]
    assert streams == passes
