"""Redaction: no planted secret comes out in any format, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builder import TraceBuilder
from sample_reports import report_of

import hpuprof
from hpuprof.exporting import TABLE_NAMES
from hpuprof.report.model import Report, ReportData
from hpuprof.report.recordings import lead_recording
from hpuprof.report.redact import Redactor, redact_reports

HOST = "zebrahost42"
USER = "mallory77"
SECRETS = (HOST, USER, "sesame", "vaultdir", "10.20.30.40", "torpedo", "krypton")
"""Host, user, words of paths, an address, words of command lines; all must be gone."""
COMMAND = f"python /opt/vaultdir/train.py --token=sesame --user {USER}"


def planted(folder: Path, *, extra: float = 0.0) -> Path:
    """A trace with secrets in every free text that a writer can fill."""
    b = TraceBuilder(
        host_name=HOST,
        traceName=f"/home/{USER}/vaultdir/run.json",
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2, "master": f"{HOST}:29500"},
        deviceProperties=[{"id": 0, "name": f"GPU of {HOST}", "totalGlobalMem": 1 << 30}],
        environment={"USER": USER, "HOME": f"/home/{USER}", "TOKEN": "sesame", "CMDLINE": COMMAND},
        hpuprof={"host": HOST, "command": COMMAND, "window": "0", "stage": "fit", "action": "training_step"},
    )
    b.event(ph="M", name="process_name", pid=100, tid=0, ts=0, args={"name": COMMAND})
    b.event(ph="M", name="process_labels", pid=100, tid=0, ts=0, args={"labels": f"{HOST} torpedo"})
    b.thread("torpedo worker of krypton", (100, 102))
    b.event(ph="M", name="thread_name", pid=0, tid=7, ts=0, args={"name": f"stream 7 torpedo@{HOST}"})
    at = 0.0
    for i in range(6):
        b.step(i, at, 1000 + extra)
        b.annotation(f"load /home/{USER}/vaultdir/data.bin", at + 1, 300 + extra)
        b.host(f"/home/{USER}/vaultdir/model.py(12): forward", at + 10, 50, cat="python_function")
        b.host(COMMAND, at + 60, 50 + extra)
        b.host(f"connect {USER}@{HOST}:22 via 10.20.30.40", at + 320 + extra, 60)
        b.host("aten::mm", at + 400 + extra, 50, **{"Input Dims": [[2, 3], [3, 4]]})
        b.host("odd row", at + 460 + extra, 5, cat=f"/srv/vaultdir/{USER}", thread=(100, 102))
        b.kernel(
            f"void k<(lambda at /home/{USER}/vaultdir/k.cu:12:3)>(int)", at + 600 + extra, 200, launch=at + 410 + extra
        )
        b.kernel(f"C:\\Users\\{USER}\\vaultdir\\kernel", at + 850 + extra, 20, launch=at + 420 + extra)
        at += 1000 + extra
    b.event(ph="X", cat="cpu_op", name="cut", pid=100, tid=100, ts=at + 1)
    path = folder / f"{HOST}-of-{USER}_0.123.pt.trace.json"
    return b.write(path)


def leaks(text: str) -> list[str]:
    return [s for s in SECRETS if s.lower() in text.lower()]


def test_the_trap_is_armed(run, tmp_path):
    """Without --redact every secret shows somewhere, or the test below would prove nothing."""
    path = planted(tmp_path)
    seen = run("analyze", path, "--json")[1] + run("export", path, "--table", "slices")[1]
    assert leaks(seen) == list(SECRETS)


@pytest.mark.parametrize("form", ["text", "json", "md", "txt", *(f"export {t}" for t in TABLE_NAMES)])
def test_no_secret_comes_out_of_a_report(run, tmp_path, form):
    path = planted(tmp_path)
    if form.startswith("export"):
        code, text, _ = run("export", path, "--table", form.split()[1], "--redact")
    elif form in ("text", "json"):
        code, text, _ = run("analyze", path, "--redact", *(["--json"] if form == "json" else []))
    else:
        target = tmp_path / f"out.{form}"
        code, _, _ = run("analyze", path, "--redact", "-o", target)
        text = target.read_text()
    assert code == 0
    assert leaks(text) == []


@pytest.mark.parametrize("form", ["text", "json", "md", "junit"])
def test_no_secret_comes_out_of_a_comparison(run, tmp_path, form):
    (tmp_path / "b").mkdir()
    a, b = planted(tmp_path), planted(tmp_path / "b", extra=100)
    target = tmp_path / f"out.{'xml' if form == 'junit' else form}"
    options = {"json": ["--json"], "md": ["-o", target], "junit": ["--junit", target, "--fail-on", "step_time_p50:1%"]}
    _, out, err = run("compare", a, b, "--redact", *options.get(form, []))
    text = target.read_text() if form in ("md", "junit") else out
    assert text
    assert leaks(text) == []
    assert leaks(err.replace(str(target), "")) == []


@pytest.mark.parametrize(
    "sample", ["hpu_g1_lazy", "hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp", "hpu_hw_csv", "hpu_synapse_logger"]
)
def test_nothing_else_changes(samples, sample):
    """Only files' names and hosts differ; numbers, names of operators, kernels, lanes and our own words stay."""
    report = report_of(sample)
    before, after = (json.loads(_json(r)) for r in (report, hpuprof.redact(report)))
    files = {f["path"] for f in before["files"]} | {f["host_name"] for f in before["files"]}

    def differences(x, y):
        if isinstance(x, dict):
            assert list(x) == list(y)
            for key in x:
                yield from differences(x[key], y[key])
        elif isinstance(x, list):
            assert len(x) == len(y)
            for one, other in zip(x, y, strict=True):
                yield from differences(one, other)
        elif x != y:
            yield x

    assert set(differences(before, after)) <= files
    assert after["metrics"] == before["metrics"]


def _json(report):
    from hpuprof.render import render

    return render(report, ".json")


def test_tokens_are_stable_and_shared_between_reports(samples):
    a, b = report_of("hpu_g1_lazy"), report_of("hpu_g3_lazy_8_ranks")
    one, two = redact_reports([a, b])
    again = redact_reports([a, b])
    assert [r.data for r in (one, two)] == [r.data for r in again]
    hosts = {
        (f.host_name, g.host_name)
        for r, s in ((a, one), (b, two))
        for f, g in zip(r.data.files, s.data.files, strict=True)
    }
    assert len(hosts) == len({h for h, _ in hosts}) == len({t for _, t in hosts})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::mm", "aten::mm"),
        ("void at::native::(anonymous namespace)::k<float, 4>(int, int)", None),
        ("fwd/bwd overlap", None),
        ("Optimizer.step#SGD.step", None),
        ("/device:HPU:0", None),
        ("MME/TPC", None),
        ("a / b", None),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", None),
        ("1.2 ms of 3.4 ms", None),
        ("load /data/x/y.bin now", "load path-1 now"),
        ("model.py(12): forward", "path-1(12): forward"),
        ("s3://bucket/key", "path-1"),
        ("~/x/y", "path-1"),
        ("from 192.168.0.1:80", "from host-1:80"),
        ("at 2001:db8::1", "at host-1"),
        ("[2001:db8::1]:29500", "[host-1]:29500"),
        ("fe80::1: refused", "host-1: refused"),
        ("fe80::1%eth0 and ::1", "host-1 and host-2"),
        ("conn_2001:db8::1_7", "conn_host-1_7"),
        ("::ffff:10.0.0.1", "host-1"),
        ("08:00:27:ab:cd:ef", "host-1"),
        ("tcp://ip-10-0-0-7", "path-1"),
        ("on ip-10-0-0-7.", "on host-1."),
        ("cuDNN 9.1.0.70", None),
        ("nccl 2.21.5.1", None),
        ("nccl 2.21.5.1:29500", "nccl host-1:29500"),
        ("version 10.1.2.3", "version host-1"),
        ("via 9.1.0.70.", "via host-1."),
        ("999.1.2.300", None),
        ("1:2:3:4:5:6", None),
        ("12:30:45", None),
        ("void c10::add(fe::Add, (anonymous namespace)::dead)", None),
        ("nn.Module: secretproj/models/net.py_7", "nn.Module: path-1_7"),
        ("torch.log_softmax", None),
        (f"login ghp_{'a1B2' * 9}", "login key-1"),
        ("key AKIAIOSFODNN7EXAMPLE", "key key-1"),
        (f"hf_{'aB3' * 12}_x", "key-1_x"),
        ("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "Bearer key-1"),
        ("hf_attention_forward_kernel", None),
        ("python train.py --x=1", "command-1"),
        ("SECRET=1 run", "command-1"),
    ],
)
def test_what_counts_as_a_secret(text, expected):
    assert Redactor().text(text) == (expected or text)


def test_advice_keeps_its_options(samples):
    """Our own words may name options and settings; they are no command line of the user's."""

    class Advised(ReportData, frozen=True, kw_only=True):
        graph_mode: dict[str, str]

    report = report_of("hpu_g1_lazy")
    words = {"command": "hpuprof analyze traces --step-time 12ms", "note": f"see /home/{USER}/train.py:12"}
    fields = {n: getattr(report.data, n) for n in report.data.__struct_fields__ if n != "graph_mode"}
    redacted = hpuprof.redact(Report(Advised(**fields, graph_mode=words)))
    assert redacted.data.graph_mode == {"command": words["command"], "note": "see path-1:12"}


@pytest.mark.parametrize("name", ["trace.json.gz", "worker0.pt.trace.json", "rank_3.json", "profile_12.json"])
def test_usual_names_of_files_are_no_hosts(name):
    r = Redactor()
    r.learn_file(name)
    assert r.text("the whole trace of worker0, rank_3") == "the whole trace of worker0, rank_3"


def test_known_users_and_hosts_go_as_whole_words():
    r = Redactor()
    r.learn_text("/home/carol/x")
    r.learn_file("dir/nodeseven_3.17.pt.trace.json")
    assert r.text("carol trains on NodeSeven, carols sing") == "user-1 trains on host-1, carols sing"
    assert r.whole("file", "dir/nodeseven_3.17.pt.trace.json").endswith(".pt.trace.json")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HPU acmehost9", "HPU device-1"),
        ("NVIDIA A100-SXM4-80GB", None),
        ("NVIDIA A100-PG509-200", None),
        ("NVIDIA GeForce RTX 2080 Ti", None),
        ("AMD Instinct MI250X", None),
        ("Intel(R) Data Center GPU Max 1550", None),
        ("GAUDI3", None),
    ],
)
def test_a_device_keeps_the_words_of_its_maker(name, expected):
    assert Redactor().device(name) == (expected or name)


@pytest.mark.parametrize(
    ("name", "expected"), [("0", None), ("3@2", None), ("1-async", None), ("of acmehost9", "window-1")]
)
def test_a_window_keeps_the_recorders_words(name, expected):
    assert Redactor().window(name) == (expected or name)


def test_windows_and_devices_have_one_token_everywhere(tmp_path):
    """Rows still belong together, the headline still finds its recording."""
    b = TraceBuilder(
        deviceProperties=[{"id": 0, "name": "HPU acmehost9"}], hpuprof={"window": "of acmehost9", "stage": "fit"}
    )
    for i in range(6):
        b.step(i, 1000 * i, 1000).host("aten::mm", 1000 * i + 10, 500)
    report = hpuprof.redact(hpuprof.analyze(b.write(tmp_path / "a.pt.trace.json")))
    assert "acmehost9" not in _json(report)
    assert report.headline.lead.window == "window-1" == report.data.operators[0].window
    assert lead_recording(report.data) is report.data.ranks[0]


def test_the_names_of_windows_that_are_judged_apart_are_tokens(tmp_path):
    for window, step in (("of acmehost9", 100), ("of acmehost8", 200)):
        b = TraceBuilder(hpuprof={"window": window, "rank": 0}).steps(5, step)
        for i in range(5):
            b.host("aten::mm", i * step + 1, 20).kernel("gemm", i * step + 30, 40, launch=i * step + 2)
        b.write(tmp_path / f"{window[-1]}.pt.trace.json")
    report = hpuprof.redact(hpuprof.analyze(tmp_path, jobs=1))
    assert "acmehost" not in _json(report)
    assert [row.windows for row in report.data.windows] == [["window-1"], ["window-2"]]
    assert "window window-2 (" in report.headline.sentence


def test_long_names_cost_time_that_grows_with_them(limited, tmp_path):
    """Letters and `a+a+…` were read once from each of their characters: 40 kB took 5 s."""
    b = TraceBuilder()
    for i in range(4):
        b.step(i, 1000 * i, 1000)
    for place, name in enumerate(
        ("x" * 400_000, "a+" * 200_000, "a\\" * 200_000, "1:" * 200_000, "~a" * 200_000, "/a" * 200_000)
    ):
        b.host(name, 1010 + 100 * place, 50)
    done = limited("analyze", "--redact", "--json", "--quiet", b.write(tmp_path / "long.pt.trace.json"), cpu_s=20)
    assert done.exit == 0, done.stderr[:500]
