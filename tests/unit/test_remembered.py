"""The report of a run of many ranks is made once, and again as soon as anything that it depends on is another."""

import os
import shutil
import subprocess
import sys
import zlib

import msgspec
import pytest

import hpuprof
from hpuprof import cache as cache_module
from hpuprof.cache import FOLDER, Cache
from hpuprof.report import combine as combining
from hpuprof.report import remembered as module

LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def _own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "LEAST_FILES", 3)


@pytest.fixture
def traces(samples, tmp_path):
    """Three ranks whose files have been quiet for a while."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for i, source in enumerate(sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))[:3]):
        os.utime(shutil.copy(source, folder), (LONG_AGO, LONG_AGO + i))
    return folder


@pytest.fixture
def combined(monkeypatch):
    """One entry for each time that ranks were combined."""
    real, times = combining.combine, []
    monkeypatch.setattr(combining, "combine", lambda *args, **kwargs: times.append(1) or real(*args, **kwargs))
    return times


@pytest.fixture
def again(traces, tmp_path, combined):
    """Analyze with a cache; return the report, and whether it was made anew."""

    def run(**options):
        combined.clear()
        return hpuprof.analyze(traces, jobs=1, **{"cache": str(tmp_path / "c"), **options}), bool(combined)

    return run


def test_a_second_run_combines_nothing_and_says_the_same(again, traces, combined):
    first, made = again()
    assert made
    told = []
    assert again(progress=told.append) == (first, False)
    assert sorted(told) == sorted(p.name for p in traces.iterdir())


@pytest.mark.parametrize(
    "options", [{"table_rows": 5}, {"clock": "raw"}, {"rank_from": "name"}, {"step_time": "12ms"}, {"cache": "off"}]
)
def test_other_options_make_another_report(again, options):
    again()
    assert again(**options)[1]


def test_other_clocks_make_another_report(again, tmp_path):
    manifest = tmp_path / "clocks.json"
    for offset in (0, 5_000):
        manifest.write_text(f'{{"hls2-srv-14": {offset}}}')
        assert again(clock=f"manifest:{manifest}")[1]


def test_a_changed_a_new_and_a_missing_file_make_another_report(again, traces, samples):
    again()
    names = sorted(traces.iterdir())
    os.utime(names[0], (LONG_AGO, LONG_AGO + 50))
    assert again()[1]
    extra = shutil.copy(sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))[3], traces)
    os.utime(extra, (LONG_AGO, LONG_AGO))
    assert again()[1]
    (traces / "broken.pt.trace.json").write_text("")
    os.utime(traces / "broken.pt.trace.json", (LONG_AGO, LONG_AGO))
    report, made = again()
    assert made
    assert [d.path for d in report.data.diagnostics if d.code == "HP114"] == ["broken.pt.trace.json"]


def test_a_file_that_fails_is_told_each_time(again, traces):
    broken = traces / "rank9.pt.trace.json"
    broken.write_text('{"traceEvents": [{"ph": "X"')
    os.utime(broken, (LONG_AGO, LONG_AGO))
    assert again()[1]
    report, made = again()
    assert made
    assert "HP114" in {d.code for d in report.data.diagnostics}
    with pytest.raises(hpuprof.InputError):
        again(strict=True)


def test_strict_holds_for_what_is_remembered(again, monkeypatch):
    again()
    monkeypatch.setattr(
        "hpuprof.analysis_run.refuse_losses", lambda rows, _: (_ for _ in ()).throw(hpuprof.InputError("lost"))
    )
    with pytest.raises(hpuprof.InputError, match="lost"):
        again(strict=True)


def test_a_file_that_changes_meanwhile_is_not_remembered(again, traces, monkeypatch, combined):
    real = combining.combine

    def touched(*args, **kwargs):
        os.utime(min(traces.iterdir()), (LONG_AGO, LONG_AGO + 70))
        return real(*args, **kwargs)

    monkeypatch.setattr(combining, "combine", touched)
    again()
    os.utime(min(traces.iterdir()), (LONG_AGO, LONG_AGO))
    monkeypatch.setattr(combining, "combine", lambda *args, **kwargs: combined.append(1) or real(*args, **kwargs))
    assert again()[1]


def test_few_files_are_combined_again(again, monkeypatch):
    monkeypatch.setattr(module, "LEAST_FILES", 4)
    again()
    assert again()[1]


def test_reports_beside_the_traces_are_never_believed(again, traces, tmp_path):
    again(cache="beside")
    assert len(list((traces / FOLDER).glob("partials/*/*"))) == 3
    assert len(list((tmp_path / "home").glob("hpuprof/partials/*/*"))) == 1, "the report, in the user's own folder"
    shutil.rmtree(tmp_path / "home")
    assert again(cache="beside")[1]


def entry(tmp_path):
    """The entry of the report: the only one that is no partial."""
    entries = (tmp_path / "c").glob("partials/*/*")
    (found,) = [e for e in entries if not e.read_bytes()[16:].startswith(b"hpupart")]
    return found


DAMAGE = {
    "cut": lambda body: body[:-3],
    "nothing": lambda body: b"",
    "no zlib": lambda body: b"\xff" * 100,
    "another value": lambda body: zlib.compress(msgspec.msgpack.encode({"schema_version": 3})),
    "a bomb": lambda body: zlib.compress(b"\x90" * (1 << 28)),
    "deep": lambda body: zlib.compress(b"\x91" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_forged_entry_is_made_anew(again, tmp_path, damage):
    first, _ = again()
    place = entry(tmp_path)
    good = place.read_bytes()
    body = DAMAGE[damage](good[16:])
    key = place.parent.name + place.name
    place.write_bytes(cache_module._checksum(key, body) + body)
    assert again() == (first, True)
    assert place.read_bytes() == good


def test_only_who_may_read_every_trace_may_read_the_report(again, traces, tmp_path):
    for path, mode in zip(sorted(traces.iterdir()), (0o644, 0o640, 0o604), strict=True):
        path.chmod(mode)
    again()
    assert entry(tmp_path).stat().st_mode & 0o777 == 0o600


def test_numbers_beyond_64_bits_are_no_failure(tmp_path):
    data = msgspec.defstruct("Data", [("number", int)])(2**70)
    module.remember(Cache.at(str(tmp_path / "c")), [str(tmp_path)], "key", data)
    assert not (tmp_path / "c").exists()


def test_all_code_that_combines_counts():
    code = "import sys, hpuprof.report.combine; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("hpuprof.")}
    counted = {room.removesuffix(".py") for room in (*cache_module._ROOMS, *module._ROOMS)}
    assert rooms - counted - {"_native", "executors", "worker_process"} == {
        "_version",
        "errors",
        "faces",
        "files",
        "messages",
    }
