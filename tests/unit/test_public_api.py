"""What `import hpuprof` offers, and what it must not load."""

import pickle
import subprocess
import sys
from importlib.util import find_spec

import crashing
import msgspec
import pytest
from sample_reports import report_of

import hpuprof
from hpuprof import errors
from hpuprof.cli.main import main


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("package", ["pandas", "numpy", "torch", "lightning", "rich", "jinja2", "plotly", "click"])
def test_import_hpuprof_is_light(package):
    assert run_python(f"import sys, hpuprof; print({package!r} in sys.modules)") == "False"


def test_help_loads_nothing_heavy():
    code = "import sys; from hpuprof.cli.main import main; main(['--help']); print([p for p in ('pandas', 'numpy', 'torch', 'plotly', 'rich', 'jinja2') if p in sys.modules])"
    assert run_python(code).splitlines()[-1] == "[]"


def test_analysis_needs_neither_torch_nor_pandas(samples):
    code = f"import sys, hpuprof; hpuprof.analyze({str(samples / 'cpu_1_rank')!r}); print('torch' in sys.modules, 'pandas' in sys.modules)"
    assert run_python(code) == "False False"


@pytest.mark.parametrize("sample", ["cpu_1_rank", "hpu_g2_eager"])
def test_json_of_one_rank_loads_what_it_shows(samples, sample):
    ours = (
        "gate",
        "render.markdown",
        "render.text",
        "render.sections",
        "comparison.result",
        "ranks.scenarios",
        "ranks.job_cycle",
    )
    unused = (*(f"hpuprof.{room}" for room in ours), "jinja2", "numpy.ma", "zipfile", "tempfile", "csv")
    # numpy before 2 loads some of them itself.
    code = f"import sys, numpy; numpys = set(sys.modules); from hpuprof.cli.main import main; main(['analyze', {str(samples / sample)!r}, '--json']); print([p for p in {unused} if p in sys.modules and p not in numpys])"
    assert run_python(code).splitlines()[-1] == "[]"


def test_records_that_an_analysis_loads_are_not_compiled_at_each_start(samples):
    code = f"import dataclasses, sys; made = []; real = dataclasses._process_class; dataclasses._process_class = lambda *a: made.append(a[0].__name__) or real(*a); from hpuprof.cli.main import main; main(['analyze', {str(samples / 'hpu_g2_eager')!r}, '--json']); print(sorted(made))"
    assert run_python(code).splitlines()[-1] == "['ClockOffset', 'Run']"


def test_every_public_name_resolves():
    for name in hpuprof.__all__:
        if name == "HPUProfiler" and find_spec("lightning") is None:
            with pytest.raises(hpuprof.MissingDependencyError, match="needs lightning"):
                getattr(hpuprof, name)
        else:
            assert getattr(hpuprof, name) is not None
    assert dir(hpuprof) == sorted(hpuprof.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hpuprof.no_such_name


def test_load_reads_headers_and_analyze_takes_a_run(samples):
    run = hpuprof.load(samples / "hpu_g3_lazy_8_ranks")
    assert (len(run), run.ranks) == (8, list(range(8)))
    assert hpuprof.analyze(run, jobs=1).data == report_of("hpu_g3_lazy_8_ranks").data


def test_tables_are_frames_with_the_documented_columns(samples):
    report = report_of("hpu_g1_lazy")
    steps = report.steps
    assert list(steps.columns) == list(type(report.data.steps[0]).__struct_fields__)
    assert steps["wall_ns"].dtype == "int64"
    assert steps["device_busy_ns"].tolist() == [s.device_busy_ns for s in report.data.steps]
    steps["wall_ns"] = 0
    assert (report.steps["wall_ns"] > 0).all(), "a frame is a copy"


def test_unknown_numbers_stay_unknown_in_frames(samples):
    report = report_of("cpu_1_rank")
    assert report.steps["device_busy_ns"].isna().all()
    assert report.metrics["device_busy_fraction"].value is None
    assert report.metrics["idle_data_loader_fraction"].value is None


def test_report_is_frozen_and_survives_pickling(samples):
    report = report_of("cpu_1_rank")
    with pytest.raises(AttributeError):
        report.data = None
    assert pickle.loads(pickle.dumps(report)) == report
    assert report.headline.sentence in repr(report)
    with pytest.raises(hpuprof.UsageError, match="no table 'nope'"):
        report.table("nope")


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp", "hpu_synapse_logger"])
def test_json_round_trip_is_exact(samples, tmp_path, sample):
    report = report_of(sample)
    path = hpuprof.save(report, tmp_path / "report.json")
    again = hpuprof.read_report(path)
    assert again == report
    assert hpuprof.save(again, tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_serial_and_parallel_reports_are_the_same_bytes(samples):
    from concurrent.futures import ThreadPoolExecutor

    from hpuprof.render import render

    folder = samples / "hpu_g3_lazy_8_ranks"
    with ThreadPoolExecutor(3) as pool:
        reports = [
            hpuprof.analyze(folder, jobs=1),
            hpuprof.analyze(folder, jobs=2),
            hpuprof.analyze(folder, executor=pool),
        ]
    assert len({render(r, ".json") for r in reports}) == 1


def test_order_of_files_changes_nothing(samples):
    files = sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))
    assert hpuprof.analyze(files).data == hpuprof.analyze(files[::-1]).data


def test_adding_a_rank_changes_no_other_ranks_numbers(samples):
    files = sorted((samples / "hpu_g3_lazy_8_ranks").glob("*.gz"))
    some, every = hpuprof.analyze(files[:3]), hpuprof.analyze(files)
    assert some.data.steps == [s for s in every.data.steps if s.rank < 3]
    assert some.data.kernels == [k for k in every.data.kernels if k.rank < 3]


def test_partials_stay_small(samples):
    from builder import reduce_file

    from hpuprof.ingest.discover import discover

    for file in discover([samples / "hpu_g3_lazy_8_ranks"])[0]:
        assert len(msgspec.json.encode(reduce_file(file))) < 200_000  # even before it is packed


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 19, str(2**63)])
def test_read_report_refuses_numbers_that_no_table_holds(tmp_path, samples, number):
    report = hpuprof.analyze(samples / "cpu_1_rank")
    path = hpuprof.save(report, tmp_path / "r.json")
    text = path.read_text()
    path.write_text(text.replace('"wall_ns":', f'"wall_ns":{number},"was":', 1))
    with pytest.raises(hpuprof.InputError, match="a number out of range at byte"):
        hpuprof.read_report(path)
    path.write_text(text.replace('"name":"', f'"name":"\\" {number} ', 1))
    assert len(hpuprof.read_report(path).data.steps) == len(report.data.steps)


def test_read_report_refuses_what_is_none(tmp_path):
    path = tmp_path / "x.json"
    for text, reason in (
        ("{}", "schema_version"),
        ("[1", "not an hpuprof report"),
        ('{"schema_version": 99}', "newer"),
    ):
        path.write_text(text)
        with pytest.raises(hpuprof.InputError, match=reason):
            hpuprof.read_report(path)
    with pytest.raises(hpuprof.InputError, match="cannot be read"):
        hpuprof.read_report(tmp_path / "none.json")


def test_a_report_of_an_earlier_schema_is_read(tmp_path):
    report = report_of("hpu_g1_lazy")
    old = msgspec.to_builtins(report.data) | {"schema_version": 1}
    for row in old["modules"]:  # columns went, one came
        row |= {"type": "", "coverage_10": 1.0, "pool_bytes": 5}
        del row["memory_bytes"]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(old))
    again = hpuprof.read_report(tmp_path / "old.json")
    assert again.data.modules == [msgspec.structs.replace(m, memory_bytes=None) for m in report.data.modules]
    for form, name in ((again, "again.txt"), (report, "report.txt")):
        hpuprof.save(form, tmp_path / name)
    assert (tmp_path / "again.txt").read_text() == (tmp_path / "report.txt").read_text()


def test_save_leaves_no_half_file(samples, tmp_path):
    report = report_of("cpu_1_rank")
    with pytest.raises(hpuprof.UsageError, match="no format for the suffix"):
        hpuprof.save(report, tmp_path / "report.xyz")
    with pytest.raises(hpuprof.OutputError, match="no such directory"):
        hpuprof.save(report, tmp_path / "none" / "report.json")
    hpuprof.save(report, tmp_path / "report.md")
    with pytest.raises(hpuprof.OutputError, match="exists"):
        hpuprof.save(report, tmp_path / "report.md", force=False)
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_errors_survive_a_process_border():
    original = errors.TraceFormatError("bad", path="a.json", offset=7, hint="do")
    again = pickle.loads(pickle.dumps(original))
    assert (type(again), again.message, again.path, again.offset, again.hint) == (
        errors.TraceFormatError,
        "bad",
        "a.json",
        7,
        "do",
    )


def test_a_dead_worker_costs_nothing(samples):
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool

    class Dying:
        def submit(self, work, item):
            future = Future()
            future.set_exception(BrokenProcessPool("killed"))
            return future

    folder = samples / "hpu_g3_lazy_8_ranks"
    got, told = hpuprof.analyze(folder, executor=Dying()).data, hpuprof.analyze(folder).data
    again = [d for d in got.diagnostics if d.code == "HP162"]
    assert [(d.count, d.text.split(";")[0]) for d in again] == [(8, "its worker failed (BrokenProcessPool: killed)")]
    assert msgspec.structs.replace(got, diagnostics=[d for d in got.diagnostics if d not in again]) == told


def test_a_file_that_kills_its_workers_costs_itself(samples, monkeypatch):
    monkeypatch.setattr("hpuprof.analysis_run.DeepTask", crashing.DeadlyTask)
    report = hpuprof.analyze(samples / "hpu_g3_lazy_8_ranks", jobs=2)
    (lost,) = [row for row in report.data.diagnostics if row.code in ("HP114", "HP162")]
    assert lost.path.startswith("gaudi-host0_3.")
    assert "even when run alone" in lost.text
    assert len(report.files) == 7


def test_an_error_shows_its_hint_in_a_traceback_and_once_on_the_command_line(tmp_path, capsys):
    with pytest.raises(hpuprof.NoTracesFoundError) as error:
        hpuprof.analyze(tmp_path)
    assert error.value.hint
    assert str(error.value) == f"{error.value.message} ({error.value.hint})"
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert str(errors.UsageError("no hint")) == "no hint"
    assert main(["analyze", str(tmp_path)]) == errors.EXIT_INPUT
    assert capsys.readouterr().err.count(error.value.hint) == 1
