"""The command line: exit codes, what goes to stdout, help, errors, settings."""

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import jsonschema
import pytest


def shell(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "hpuprof", *map(str, arguments)], capture_output=True, text=True, check=False, **kwargs
    )


def test_analyze_answers_first(run, samples):
    code, out, err = run("analyze", samples / "hpu_g1_lazy", "--full")
    assert (code, err) == (0, "")
    assert out.startswith("Host-bound: the device sat idle 56.2 % of the step while")
    for title in (
        "What to change first",
        "Step budget",
        "Device idle",
        "Longest device idle gaps",
        "Operators",
        "Kernels",
        "Data quality",
    ):
        assert f"\n{title}" in out


@pytest.mark.parametrize("columns", [72, 80, 120, 200])
@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "lightning_1_rank"])
@pytest.mark.usefixtures("remembered")
def test_text_fits_its_width(run, samples, monkeypatch, columns, sample):
    monkeypatch.setenv("COLUMNS", str(columns))
    for option in ([], ["--full"]):
        _, out, _ = run("analyze", samples / sample, *option)
        assert max(len(line) for line in out.splitlines()) <= columns


@pytest.mark.usefixtures("remembered")
def test_color_only_when_asked(run, samples, monkeypatch):
    assert "\x1b[" not in run("analyze", samples / "hpu_g1_lazy")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("analyze", samples / "hpu_g1_lazy")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("analyze", samples / "hpu_g1_lazy")[1]


@pytest.mark.parametrize(
    "sample", ["hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_1_rank", "hpu_hw_csv", "hpu_synapse_logger"]
)
@pytest.mark.usefixtures("remembered")
def test_json_is_one_document_that_fits_the_schema(run, samples, sample):
    from importlib.resources import files

    code, out, _ = run("analyze", samples / sample, "--json")
    schema = json.loads(files("hpuprof.report").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(out), schema)
    assert code == 0


@pytest.mark.parametrize("command", ["analyze", "inspect"])
def test_missing_path_exits_3_and_says_so_in_json_too(run, tmp_path, command):
    code, out, err = run(command, tmp_path / "none")
    assert (code, out) == (3, "")
    assert err.splitlines()[0].endswith("no such file or directory")
    code, out, _ = run(command, tmp_path / "none", "--json")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"], error["code"]) == (3, 3, "input")


def test_directory_without_traces_exits_3(run, tmp_path):
    (tmp_path / "notes.json").write_text('{"a": 1}')
    code, _, err = run("analyze", tmp_path)
    assert code == 3
    assert "no trace found" in err
    assert "notes.json" in err


def test_one_broken_file_costs_only_itself(run, samples, tmp_path):
    good = next((samples / "cpu_1_rank").glob("*.gz"))
    shutil.copy(good, tmp_path / "host_0.1.pt.trace.json.gz")
    (tmp_path / "host_1.1.pt.trace.json").write_text('{"traceEvents": [')
    code, out, _ = run("analyze", tmp_path)
    assert code == 0
    assert "HP114 A file could not be analyzed" in out
    assert "host_1.1.pt.trace.json" in out
    assert run("analyze", tmp_path, "--strict")[0] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyse", "x"], "Did you mean 'analyze'?"),
        (["analyze"], "Missing argument"),
        (["analyze", ".", "--nope"], "No such option"),
        (["analyze", ".", "--rank-from", "moon"], "moon"),
        (["explain", "HP999"], "no code 'HP999'"),
        (["analyze", ".", "-o", "report.pdf"], "no format for the suffix"),
        (["analyze", ".", "-o", "nowhere/report.json"], "no such directory"),
    ],
)
def test_wrong_calls_exit_2_with_a_hint(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "hint:" in err


@pytest.mark.parametrize(("given", "message"), [("3", "hint: 3ms, or 3s, 3us, 3ns"), ("3 parsecs", "not a duration")])
def test_a_step_time_needs_a_unit(run, samples, given, message):
    code, out, err = run("analyze", samples / "cpu_1_rank", "--step-time", given)
    assert (code, out) == (2, "")
    assert message in err


def test_output_file_is_not_replaced_without_force(run, samples, tmp_path):
    target = tmp_path / "report.md"
    code, out, err = run("analyze", samples / "cpu_1_rank", "-o", target)
    assert (code, out, err) == (0, "", f"wrote {target}\n")
    assert target.read_text().startswith("# CPU-only recording: the step is")
    assert run("analyze", samples / "cpu_1_rank", "-o", target)[0] == 2
    assert run("analyze", samples / "cpu_1_rank", "-o", target, "--force")[0] == 0


def test_conflicting_ranks_exit_3_and_can_be_resolved(run, samples, tmp_path):
    good = next((samples / "hpu_g3_lazy_8_ranks").glob("*_3.*.gz"))
    for name in ("a.json.gz", "b.json.gz"):
        shutil.copy(good, tmp_path / name)
    code, _, err = run("analyze", tmp_path)
    assert code == 3
    assert "a.json.gz and b.json.gz both claim rank 3" in err
    assert "--rank-from" in err
    code, out, _ = run("analyze", tmp_path, "--rank-from", "order", "--json")
    assert (code, sorted(r["rank"] for r in json.loads(out)["ranks"])) == (0, [0, 1])


def test_settings_order_is_argument_environment_pyproject(run, samples, tmp_path, monkeypatch):
    shutil.copy(next((samples / "hpu_g3_lazy_8_ranks").glob("*_3.*.gz")), tmp_path / "one.json.gz")
    monkeypatch.chdir(tmp_path)

    def rank(*arguments):
        return json.loads(run("analyze", tmp_path, "--json", *arguments)[1])["ranks"][0]["rank"]

    assert rank() == 3
    (tmp_path / "pyproject.toml").write_text('[tool.hpuprof]\nrank-from = "order"\n')
    assert rank() == 0
    monkeypatch.setenv("HPUPROF_RANK_FROM", "inside")
    assert rank() == 3
    assert rank("--rank-from", "order") == 0
    monkeypatch.setenv("HPUPROF_JOBS", "many")
    code, _, err = run("analyze", tmp_path)
    assert (code, "HPUPROF_JOBS: jobs = 'many' is not valid" in err) == (2, True)


def test_unknown_setting_is_an_error(run, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.hpuprof]\nrankfrom = 1\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = run("analyze", tmp_path)
    assert (code, "rankfrom is unknown" in err) == (2, True)


def test_a_bug_exits_70_and_asks_for_a_report(run, samples, monkeypatch):
    monkeypatch.setattr("hpuprof.api.load", lambda *_, **__: 1 / 0)
    code, out, err = run("analyze", samples / "cpu_1_rank", "--json")
    assert code == 70
    assert json.loads(out)["error"]["code"] == "bug"
    assert "ZeroDivisionError" in err
    assert "Traceback" not in err


def test_interrupt_exits_130_quietly(run, samples, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hpuprof.api.load", interrupt)
    assert run("analyze", samples / "cpu_1_rank") == (130, "", "\n")  # click ends the line that ^C stands on


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash for PIPESTATUS")
def test_broken_pipe_exits_141_quietly(samples):
    command = f"'{sys.executable}' -m hpuprof analyze '{samples / 'hpu_g1_lazy'}' --json | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) in ((141, ""), (0, ""))


def test_inspect_names_files_ranks_steps_and_health(run, samples):
    code, out, _ = run("inspect", samples / "hpu_g1_lazy")
    assert code == 0
    for words in (
        "rank 0 fit training_step",
        "hpu G1 lazy (GAUDI2",
        "6 of 8 typical, from lightning",
        "left out: 1 compiling, 1 last",
        "HP111",
    ):
        assert words in out
    document = json.loads(run("inspect", samples / "hpu_g1_lazy", "--json")[1])
    assert document["files"][0]["steps_used"] == 6
    assert [s["excluded"] for s in document["steps"]] == ["compiling", *[""] * 6, "last"]


def test_inspect_says_on_stderr_that_python_reads(run, samples, monkeypatch):
    monkeypatch.setenv("HPUPROF_SCAN", "python")
    code, out, err = run("inspect", samples / "cpu_1_rank")
    assert code == 0
    assert re.fullmatch(
        "traces are read with Python, more slowly than with the native scanner, gzip with [a-z]+\n", err
    )
    assert run("inspect", samples / "cpu_1_rank", "--quiet") == (0, out, "")


def test_inspect_lists_rows_that_no_rule_knows(run, tmp_path):
    from builder import TraceBuilder

    path = (
        TraceBuilder()
        .steps(3, 10)
        .host("x", 1, 2, cat="new_thing")
        .thread("engine 9", (100, 100))
        .write(tmp_path / "a.json")
    )
    assert "unknown  1 new_thing on engine 9" in run("inspect", path)[1]


def test_explain_knows_every_code(run):
    code, out, _ = run("explain")
    codes = re.findall(r"^  (HP\d+)", out, re.M)
    assert code == 0
    assert len(codes) == len(set(codes)) > 30
    for name in codes:
        assert run("explain", name.lower())[0] == 0
    assert "found when: device idle" in " ".join(run("explain", "HP201")[1].split())
    assert json.loads(run("explain", "HP201", "--json")[1])["code"] == "HP201"


def test_hostile_names_stay_text(run, tmp_path):
    from builder import TraceBuilder

    evil = "\x1b[31mred\u202e</script><img src=x onerror=alert(1)>[bold]|`x`"
    path = (
        TraceBuilder()
        .steps(3, 100)
        .host(evil, 1, 50)
        .host(evil, 101, 50)
        .kernel(evil, 60, 20, launch=10)
        .write(tmp_path / "a.json")
    )
    _, out, _ = run("analyze", path, "--full")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[31mred" in out
    run("analyze", path, "-o", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text()
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;\\[bold\\]\\|\\`x\\`" in text


def test_version_and_module_entry():
    from hpuprof import __version__
    from hpuprof.native import gzip_library

    done = shell("--version", env={**os.environ, "HPUPROF_SCAN": "python"})
    gzip = gzip_library().__name__.partition(".")[0]
    how = f"traces are read with Python, more slowly than with the native scanner, gzip with {gzip}"
    assert (done.returncode, done.stdout) == (0, f"hpuprof {__version__}, {how}\n")


def test_every_command_has_help_and_examples_of_its_options(run):
    from hpuprof.cli.main import COMMANDS

    assert set(COMMANDS) <= set(run("--help")[1].split())
    for name in COMMANDS:
        code, out, _ = run(name, "--help")
        assert (code, out.startswith(f"Usage: hpuprof {name}")) == (0, True)


def test_without_arguments_it_says_what_it_is_how_to_begin_and_all_commands():
    from hpuprof.cli.main import COMMANDS

    done = shell(env={**os.environ, "COLUMNS": "200"})
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 13)
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("hpuprof shows where each training step spends its time")
    assert [line.split("#")[0].strip() for line in lines if "#" in line] == [
        "hpuprof analyze traces/",
        "hpuprof plan traces/",
        "hpuprof compare before/ after/",
    ]
    groups = {name: commands.split() for name, _, commands in (line.strip().partition("  ") for line in lines[6:11])}
    assert list(groups) == ["Analyze", "Look", "Files", "Record", "Machine"]
    assert [name for names in groups.values() for name in names] == list(COMMANDS)


def _help_of(run, name):
    return run(*filter(None, [name]), "--help")[1]


def test_help_lists_each_command_in_one_line_of_its_group(run):
    from hpuprof.cli.main import GROUPS

    lines = _help_of(run, "").splitlines()
    for title, commands in GROUPS.items():
        at = lines.index(f"{title}:")
        assert [line.split(maxsplit=1) for line in lines[at + 1 : at + 1 + len(commands)]] == [
            [name, words] for name, words in commands.items()
        ]
        assert lines[at + 1 + len(commands)] == ""


def test_no_help_shows_signs_of_its_source_or_joins_lines_that_belong_apart(run):
    from hpuprof.cli.main import COMMANDS, cli

    kept = []
    for name in ("", *COMMANDS):
        text = _help_of(run, name)
        assert not re.search(r"\\[a-z]|[\x00-\x09\x0b-\x1f]", text), name
        command = cli.get_command(None, name) if name else cli
        for paragraph in inspect.cleandoc(command.callback.__doc__).split("\n\n"):
            first, *rest = paragraph.splitlines()
            if first == "\b":
                assert "\n".join(f"  {line}" for line in rest) in text
                kept.append(name)
            else:
                assert "   " not in paragraph, f"{name}: columns need a line of \\b before them"
    assert not kept


def test_progress_never_reaches_stdout(samples):
    environment = {**os.environ, "TERM": "xterm"}
    done = shell("analyze", samples / "cpu_1_rank", "--json", env=environment)
    assert json.loads(done.stdout)
    assert done.stderr == ""


def test_where_work_is_remembered_and_how_long_tables_get(run, samples, tmp_path):
    folder = samples / "hpu_g3_lazy_8_ranks"
    whole = json.loads(run("analyze", folder, "--json")[1])
    short = json.loads(run("analyze", folder, "--json", "--table-rows", "60", "--cache", tmp_path / "c")[1])
    assert len(list((tmp_path / "c").glob("partials/*/*"))) == 8
    assert len(whole["kernels"]) > len(short["kernels"]) > 0
    assert short["metrics"] == whole["metrics"]
    assert "HP160" in {d["code"] for d in short["diagnostics"]}
    assert run("inspect", folder, "--cache", tmp_path / "c", "--table-rows", "60")[0] == 0
    code, _, told = run("analyze", folder, "--table-rows", "-1")
    assert (code, "-1" in told) == (2, True)


def test_a_scheduler_needs_its_extra(run, samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, told = run("analyze", samples / "cpu_1_rank", "--scheduler", "tcp://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert "pip install 'distributed>=" in told


def test_clock_chooses_what_relates_hosts(run, samples, tmp_path):
    traces = samples / "hpu_g3_lazy_8_ranks"
    for clock, said in (("raw", "raw"), ("collective", "collective")):
        code, out, _ = run("analyze", traces, "--json", "--clock", clock)
        assert code == 0
        assert [c["clock"] for c in json.loads(out)["clocks"]] == [said]
    manifest = tmp_path / "clocks.json"
    manifest.write_text('{"gaudi-host0": 125}')
    code, out, _ = run("analyze", traces, "--json", "--clock", f"manifest:{manifest}")
    assert code == 0
    assert [c["offset_ns"] for c in json.loads(out)["clocks"]] == [125.0]


@pytest.mark.parametrize("clock", ["sundial", "manifest:nowhere.json"])
def test_a_clock_that_cannot_be_is_a_usage_error(run, samples, clock):
    code, out, err = run("analyze", samples / "hpu_g3_lazy_8_ranks", "--clock", clock)
    assert (code, out) == (2, "")
    assert "clock" in err


@pytest.mark.parametrize("given", [None, "7"])
def test_only_the_command_keeps_openblas_from_starting_threads(given):
    code = (
        "import os, sys; import hpuprof.api; print(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "from hpuprof.cli.main import run\nsys.argv = ['hpuprof', '--version']\n"
        "try: run()\nexcept SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    kept = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    environment = kept if given is None else {**kept, "OPENBLAS_NUM_THREADS": given}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.split()
    assert (words[0], words[-1]) == (str(given), given or "1")


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("latin-1", ()),
        ("latin-1", ("--json",)),
        ("cp1252", ("--full",)),
        ("cp1252", ("--brief",)),
        ("cp437", ()),
        ("cp437", ("--full",)),
    ],
)
@pytest.mark.usefixtures("remembered")
def test_a_terminal_that_lacks_our_signs_gets_others(samples, encoding, options):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = ("-m", "hpuprof", "analyze", str(samples / "hpu_g3_lazy_8_ranks"), "--quiet", *options)
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert "5.16 ms" in text
    if options and options[0] != "--full":
        assert json.loads(text)
    else:
        assert max(len(line) for line in text.splitlines()) <= 84, "an arrow takes two signs"


def test_every_help_ends_with_two_examples_that_can_be_typed(run):
    from hpuprof.cli.main import COMMANDS, cli

    for name in COMMANDS:
        command = cli.get_command(None, name)
        text = _help_of(run, name)
        assert len(command.examples) >= 2, name
        for typed, words in command.examples.items():
            assert f"\n  {typed}\n" in text, name
            assert words.split()[0] in text.partition(f"\n  {typed}\n")[2], name
            program, *arguments = shlex.split(typed)
            if program == "hpuprof":
                # Options and arguments are those of the command; nothing is run.
                named = cli.get_command(None, arguments[0])
                named.make_context(arguments[0], [a for a in arguments[1:] if a != ">"][:8], resilient_parsing=True)


def test_help_lists_options_by_group(run):
    text = _help_of(run, "analyze")
    titles = [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert titles == ["What to answer", "Which traces", "Output", "Gates", "Speed", "Options", "Examples"]
    assert text.index("--fail-on") > text.index("Gates:") > text.index("--full") > text.index("Output:")


def test_a_directory_of_runs_in_folders_is_a_list_to_choose_from(run, samples):
    code, out, err = run("analyze", samples)
    lines = err.splitlines()
    assert (code, out) == (3, "")
    assert lines[0] == "hpuprof: 16 runs here, each in a folder of its own"
    assert f"  {samples}/hpu_g3_lazy_8_ranks       8 ranks, GAUDI2, 261.1 kB" in lines
    assert f"  {samples}/lightning_cuda            1 rank, NVIDIA H200, 432.5 kB" in lines, "both windows of one fit"
    assert lines[-1] == f"  hint: choose one, such as {samples}/cpu_1_rank"
    assert run("analyze", samples / "cpu_1_rank", "-q")[0] == 0


def test_ranks_in_a_folder_each_are_one_run(run, samples, tmp_path):
    for file in (samples / "cpu_2_ranks_ddp").glob("*.json.gz"):
        folder = tmp_path / file.name.partition(".")[0]
        folder.mkdir()
        shutil.copy(file, folder)
    code, out, _ = run("analyze", tmp_path, "-q")
    assert (code, "2 ranks" in out) == (0, True)


def test_a_directory_without_traces_says_what_it_holds(run, tmp_path):
    assert "no trace found in" in run("analyze", tmp_path)[2]
    for name in ("a.py", "b.py", "notes.md"):
        (tmp_path / name).touch()
    assert f"no trace found in {tmp_path} among 3 files (2 .py, 1 .md)" in run("analyze", tmp_path)[2]


def test_inspect_shows_equal_ranks_once(run, samples):
    out = run("inspect", samples / "hpu_g3_lazy_8_ranks", "-q")[1]
    assert out.count("  who      rank") == 1
    assert "  alike    ranks 1–7: 2,106 to 2,106 events, 32.5 kB to 32.7 kB each" in out


def test_explain_lists_codes_by_group_those_of_a_run_first(run, samples):
    everything = run("explain")[1]
    heads = [line for line in everything.splitlines() if line and not line.startswith((" ", "`"))]
    assert [head.partition(":")[0] for head in heads] == ["Findings", "Obstacles", "Diagnostics"]
    here = run("explain", samples / "hpu_g1_lazy")[1]
    found, _, rest = here.partition("\n\n")
    assert found.splitlines()[:2] == ["Found here", "  HP201  The host launches work too slowly"]
    assert "HP201" not in rest
    assert sorted(re.findall(r"HP\d+", here)) == sorted(re.findall(r"HP\d+", everything))


@pytest.mark.parametrize(("output", "starts"), [("-", "Host-bound"), ("-.md", "# Host-bound"), ("-.json", "{\n")])
def test_a_dash_as_output_is_stdout(run, samples, monkeypatch, tmp_path, output, starts):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("analyze", samples / "hpu_g1_lazy", "-o", output, "-q")
    assert (code, out.startswith(starts), err, list(tmp_path.iterdir())) == (0, True, "", [])
    assert run("analyze", samples / "hpu_g1_lazy", "-o", "-.xml")[0] == 2
