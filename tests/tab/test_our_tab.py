"""Our tab: its routes through werkzeug's test client, and through a running TensorBoard."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import needs
import pytest
from board import Board

needs.module("tab", "tensorboard", "needs tensorboard: pip install 'hpuprof[tensorboard]'")
from werkzeug.test import Client

import hpuprof
from hpuprof.render.page import script_hashes
from hpuprof.report.model import Report
from hpuprof.tensorboard_plugin import pages, responses
from hpuprof.tensorboard_plugin.plugin import HpuprofPlugin
from hpuprof.tensorboard_plugin.runs import Runs


def plugin(runs: Runs | None, logdir: str = "") -> tuple[HpuprofPlugin, dict[str, Client]]:
    made = HpuprofPlugin(SimpleNamespace(logdir=logdir), runs)
    return made, {path: Client(app) for path, app in made.get_plugin_apps().items()}


def looked(logdir: Path, **options: Any) -> Runs:
    runs = Runs(logdir, settled_s=0, **options)
    runs.refresh()
    runs.start = lambda: None  # type: ignore[method-assign]
    return runs


def until(holds: Callable[[], bool], *, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def logdir(samples: Path, tmp_path: Path) -> Path:
    for name in ("hpu_g2_eager", "lightning_1_rank"):
        shutil.copytree(samples / name, tmp_path / "log" / name)
    (tmp_path / "log" / "notes.json").write_text("{}", encoding="utf-8")
    return tmp_path / "log"


# ------------------------------------------------------------------------------------------------------------------- runs


def test_runs_are_directories_with_traces(logdir: Path) -> None:
    runs = looked(logdir)
    assert [(s.name, s.status) for s in runs.list()] == [("hpu_g2_eager", "done"), ("lightning_1_rank", "done")]


def test_a_run_says_what_the_analysis_says(logdir: Path) -> None:
    _, routes = plugin(looked(logdir))
    answer = routes["/runs"].get("/runs").get_json()
    row = next(r for r in answer["runs"] if r["key"] == "hpu_g2_eager")
    report = hpuprof.analyze(logdir / "hpu_g2_eager")
    assert row["sentence"] == report.answer.bound_sentence
    assert row["graph_mode"] == report.answer.graphs.sentence
    assert row["cells"]["bound"]["text"] == "input"
    assert row["cells"].keys() == {column["name"] for column in answer["columns"]}
    assert row["cells"]["step_time_p50"]["value"] == report.metrics["step_time_p50"].value
    assert [line["what"] for line in row["plan"]] == [f"{r.title}: {r.where}" for r in report.data.plan if r.order]
    (loading,) = row["plan"][0]["explains"]
    assert loading.startswith("HP202 "), "the finding is told under the line that mends it"
    assert row["findings"] == []


def test_new_files_and_new_runs_are_picked_up(logdir: Path, samples: Path) -> None:
    runs = looked(logdir)
    version = runs.get("lightning_1_rank").version  # type: ignore[union-attr]
    again = next((logdir / "lightning_1_rank").glob("*training*"))
    shutil.copy(again, again.with_name(again.name.replace("1795241901196887561", "1795241999999999999")))
    shutil.copytree(samples / "cpu_1_rank", logdir / "deep" / "er")
    runs.refresh()
    assert {s.name for s in runs.list()} == {"hpu_g2_eager", "lightning_1_rank", "deep/er"}
    state = runs.get("lightning_1_rank")
    assert state is not None
    assert (state.version, len(state.files), state.status) == (version + 1, 3, "done")
    assert runs.get("hpu_g2_eager").version == 1, "what did not change is not analyzed again"  # type: ignore[union-attr]
    shutil.rmtree(logdir / "hpu_g2_eager")
    runs.refresh()
    assert runs.get("hpu_g2_eager") is None


def test_a_file_that_is_being_written_is_waited_for(logdir: Path) -> None:
    runs = Runs(logdir, settled_s=3600)
    now = time.time_ns()
    for path in (logdir / "hpu_g2_eager").iterdir():
        os.utime(path, ns=(now, now))
    runs.refresh()
    state = runs.get("hpu_g2_eager")
    assert state is not None
    assert (state.status, state.progress) == ("waiting", "being written")


def test_progress_is_told_file_by_file_and_the_old_report_stays(logdir: Path) -> None:
    told: list[tuple[str, str, bool]] = []
    runs: Runs

    def analyze(paths: list[str], progress: Callable[[str], None]) -> Report:
        for path in paths:
            progress(path)
            state = runs.get("lightning_1_rank")
            if state is not None:
                told.append((state.status, state.progress, state.report is not None))
        return hpuprof.analyze(paths)

    runs = Runs(logdir, analyze=analyze, settled_s=0)
    (logdir / "hpu_g2_eager").rename(logdir.parent / "aside")
    (logdir / "notes.json").unlink()
    runs.refresh()
    assert told == [("analyzing", "1 of 2 files", False), ("analyzing", "2 of 2 files", False)]
    path = next((logdir / "lightning_1_rank").glob("*validation*"))
    os.utime(path, ns=(1, 1))
    runs.refresh()
    assert told[2:] == [("analyzing", "1 of 2 files", True), ("analyzing", "2 of 2 files", True)]


def test_a_broken_run_fails_alone_and_says_why(logdir: Path) -> None:
    (logdir / "bad").mkdir()
    (logdir / "bad" / "host_0.1.pt.trace.json").write_text("no trace", encoding="utf-8")
    _, routes = plugin(looked(logdir))
    rows = {r["key"]: r for r in routes["/runs"].get("/runs").get_json()["runs"]}
    assert rows["bad"]["status"] == "failed"
    assert "host_0.1.pt.trace.json" in rows["bad"]["error"]
    assert rows["hpu_g2_eager"]["status"] == "done"
    assert routes["/report"].get("/report?run=bad").status_code == 404


# --------------------------------------------------------------------------------------------------------------- security


@pytest.mark.parametrize("name", ["../secret", "/etc", "hpu_g2_eager/../../secret", "", "hpu_g2_eager/x"])
@pytest.mark.parametrize("route", ["/report", "/report.json", "/compare"])
def test_a_run_is_a_name_and_never_a_path(logdir: Path, samples: Path, name: str, route: str) -> None:
    shutil.copytree(samples / "cpu_1_rank", logdir.parent / "secret")
    _, routes = plugin(looked(logdir))
    assert routes[route].get(route, query_string={"run": name}).status_code == 404


def test_links_out_of_the_log_directory_are_not_followed(logdir: Path, samples: Path) -> None:
    outside = logdir.parent / "outside"
    shutil.copytree(samples / "cpu_1_rank", outside)
    (logdir / "linked").symlink_to(outside)
    (logdir / "file").mkdir()
    (logdir / "file" / "host_0.1.pt.trace.json.gz").symlink_to(next(outside.iterdir()))
    assert {s.name for s in looked(logdir).list()} == {"hpu_g2_eager", "lightning_1_rank"}


def test_odd_files_neither_end_the_watching_nor_stop_it(logdir: Path) -> None:
    """A loop of links, and a pipe that nobody writes into; beside them everything is analyzed."""
    folder = logdir / "odd"
    folder.mkdir()
    (folder / "loop.json").symlink_to("loop.json")
    os.mkfifo(folder / "host_0.1.pt.trace.json")
    os.mkfifo(logdir / "hpu_g2_eager" / "host_1.1.pt.trace.json")
    assert [(s.name, s.status) for s in looked(logdir).list()] == [
        ("hpu_g2_eager", "done"),
        ("lightning_1_rank", "done"),
    ]


def test_a_look_that_fails_is_told_and_the_next_one_is_made(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, search = Runs(logdir, settled_s=0, period_s=0.01), Runs._search
    failed = threading.Event()

    def broken(_: Runs) -> Any:
        failed.set()
        raise RuntimeError("a loop of links")

    monkeypatch.setattr(Runs, "_search", broken)
    _, routes = plugin(runs)
    routes["/runs"].get("/runs")
    assert failed.wait(180)
    until(lambda: "RuntimeError: a loop of links" in routes["/runs"].get("/runs").get_json()["problem"])
    monkeypatch.setattr(Runs, "_search", search)
    until(lambda: [s.status for s in runs.list()] == ["done", "done"] and not runs.problem)
    runs.stop()


def test_a_stamp_of_the_future_is_not_waited_for(logdir: Path) -> None:
    for path in (logdir / "hpu_g2_eager").iterdir():
        os.utime(path, ns=(1 << 62, 1 << 62))
    runs = Runs(logdir, settled_s=60)
    runs.refresh()
    assert runs.get("hpu_g2_eager").status == "done"  # type: ignore[union-attr]


def test_only_get(logdir: Path) -> None:
    _, routes = plugin(looked(logdir))
    for route in ("/runs", "/report", "/report.json", "/compare"):
        answer = routes[route].post(route)
        assert answer.status_code == 405
        assert answer.headers["Allow"] == "GET, HEAD"


def test_answers_have_types_and_a_policy(logdir: Path) -> None:
    _, routes = plugin(looked(logdir))
    expected = {"/runs": "application/json", "/report.json": "application/json", "/report": "text/html", "/compare": "application/json", "/index.js": "text/javascript", "/style.css": "text/css"}  # fmt: skip
    assert set(expected) == set(routes)
    for route, kind in expected.items():
        answer = routes[route].get(route, query_string={"run": "hpu_g2_eager"})
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].split(";")[0] == kind
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = routes["/report"].get("/report?run=hpu_g2_eager").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "</script><img src=x onerror=alert(1)>\x1b[31m\u202eabc"
    rows = []
    for i in range(5):
        rows.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{i}",
                "pid": 1,
                "tid": 1,
                "ts": i * 100,
                "dur": 100,
            }
        )
        rows.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": i * 100 + 5, "dur": 50})
    folder = tmp_path / "log" / "<b>run"
    folder.mkdir(parents=True)
    (folder / "host_0.1.pt.trace.json").write_text(json.dumps({"traceEvents": rows}), encoding="utf-8")
    _, routes = plugin(looked(tmp_path / "log"))
    page = routes["/report"].get("/report", query_string={"run": "<b>run"}).get_data(as_text=True)
    assert "<img src" not in page
    assert "&lt;img" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_tab_fetches_nothing_from_elsewhere() -> None:
    for name in ("index.js", "style.css"):
        text = responses.asset(name).decode()
        assert "//" not in text.replace("// ", "") or "http" not in text
        for word in ("http:", "https:", "innerHTML", "eval(", "@import", "url("):
            assert word not in text, f"{word} in {name}"


def test_the_policy_names_our_own_scripts_and_never_those_of_a_page(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "render", lambda *_: "<html><script>stolen()</script></html>")
    _, routes = plugin(looked(logdir))
    answer = routes["/report"].get("/report?run=hpu_g2_eager")
    named = set(re.findall(r"'sha256-([^']+)'", answer.headers["Content-Security-Policy"]))
    assert named == set(script_hashes(drawn=True))
    assert base64.b64encode(hashlib.sha256(b"stolen()").digest()).decode() not in named


def test_a_report_is_rendered_once_for_each_version_and_never_twice_at_a_time(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, made, at_once = looked(logdir), [], []

    def slow(report: Report, suffix: str) -> str:
        at_once.append(1)
        assert len(at_once) == 1
        time.sleep(0.05)
        at_once.pop()
        made.append(suffix)
        return f"page {len(made)}"

    monkeypatch.setattr(pages, "render", slow)
    _, routes = plugin(runs)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: routes["/report"].get("/report?run=hpu_g2_eager").get_data(), range(8)))
    assert (answers, made) == ([b"page 1"] * 8, [".html"])
    for path in (logdir / "hpu_g2_eager").iterdir():
        os.utime(path, ns=(1, 1))
    runs.refresh()
    assert routes["/report"].get("/report?run=hpu_g2_eager").get_data() == b"page 2", "another version, another page"


# ----------------------------------------------------------------------------------------------------------- what is shown


def test_comparison_shows_differences_from_the_base(logdir: Path, samples: Path) -> None:
    shutil.copytree(samples / "hpu_g1_lazy", logdir / "a")
    _, routes = plugin(looked(logdir))
    answer = routes["/compare"].get("/compare?run=a&run=hpu_g2_eager&base=a").get_json()
    a, b = (hpuprof.analyze(logdir / name).metrics for name in ("a", "hpu_g2_eager"))
    row = next(r for r in answer["rows"] if r["name"] == "step_time_p50")
    change = (b["step_time_p50"].value - a["step_time_p50"].value) / a["step_time_p50"].value  # type: ignore[operator]
    assert [c["value"] for c in row["cells"]] == [a["step_time_p50"].value, b["step_time_p50"].value]
    assert row["cells"][1]["change"] == f"{change:+.1%}"
    assert row["cells"][1]["better"] is False
    assert row["cells"][0]["change"] is None
    share = next(r for r in answer["rows"] if r["name"] == "device_busy_fraction")
    points = (b["device_busy_fraction"].value - a["device_busy_fraction"].value) * 100  # type: ignore[operator]
    assert share["cells"][1]["change"] == f"{points:+.1f} pp"


def test_the_graph_mode_verdict_is_the_reports(logdir: Path, samples: Path) -> None:
    shutil.copytree(samples / "hpu_g1_lazy", logdir / "a")
    state = looked(logdir).get("a")
    assert state is not None
    graph = state.report.graph_mode  # type: ignore[union-attr]
    row = responses.run_row(state)
    assert row["graph_mode"] == graph.sentence
    assert row["caution"] == "Estimates were never checked on this device (HPU)."
    assert row["cells"]["graph_mode"]["value"] == graph.speedup.median
    assert row["cells"]["graph_mode"]["text"] == f"yes, at most {graph.speedup.high:.2f}× (≥ {graph.speedup.low:.2f})"


def test_the_json_route_is_the_report(logdir: Path) -> None:
    _, routes = plugin(looked(logdir))
    text = routes["/report.json"].get("/report.json?run=hpu_g2_eager").get_data(as_text=True)
    assert json.loads(text)["headline"]["bound"] == "input"


def test_inactive_without_traces_and_with_a_remote_log_directory(tmp_path: Path) -> None:
    empty, _ = plugin(looked(tmp_path))
    assert not empty.is_active()
    for logdir in ("gs://bucket/run", ""):
        remote, routes = plugin(None, logdir)
        assert not remote.is_active()
        assert "local directory" in routes["/runs"].get("/runs").get_json()["problem"]


def test_active_before_the_first_search_is_done(logdir: Path) -> None:
    runs = Runs(logdir)
    runs.start = lambda: None  # type: ignore[method-assign]
    assert plugin(runs)[0].is_active()


# ------------------------------------------------------------------------------------------------------- in a TensorBoard


def test_the_tab_in_a_running_tensorboard(board: Board, our_tab: None) -> None:
    listing = board.wait("/data/plugins_listing", lambda body: body["hpuprof"]["enabled"])
    assert listing["hpuprof"]["loading_mechanism"] == {"type": "IFRAME", "module_path": "/data/plugin/hpuprof/index.js"}
    home = "/data/plugin/hpuprof"
    answer = board.wait(
        f"{home}/runs", lambda body: len(body["runs"]) >= 11 and all(r["status"] == "done" for r in body["runs"])
    )
    rows = {r["key"]: r for r in answer["runs"]}
    assert rows["hpu_g3_lazy_8_ranks/hpu_g3_lazy_8_ranks"]["cells"]["ranks"]["value"] == 8
    assert rows["hpu_g2_eager/hpu_g2_eager"]["cells"]["bound"]["value"] == "input"
    status, page = board.get(f"{home}/report", run="hpu_g2_eager/hpu_g2_eager")
    assert status == 200
    assert "Input-bound" in page or "input" in page.lower()
    assert board.get(f"{home}/report", run="../../etc")[0] == 404
