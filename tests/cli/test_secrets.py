"""Passwords and signatures of addresses stay out of everything that is printed or written, whatever the server answers."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import needs
import pytest

from hpuprof.cli.main import main
from hpuprof.errors import InputError
from hpuprof.messages import bare_address, one_line, without_secrets

SECRETS = ("hunter2", "SIGNED", "usr")


@pytest.fixture(scope="module")
def address(good_trace: Path) -> Iterator[str]:
    """A server whose answers are named by the path; the address holds a password."""
    content = good_trace.read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.partition("?")[0].rpartition("/")[2]
            code = {"404.json": 404, "500.json": 500, "403.json": 403, "circle.json": 302}.get(name, 200)
            if name == "lies.json":  # no HTTP at all
                self.wfile.write(b'{"schemaVersion": 1, "hpuprof": "hunter2"}\r\n\r\n')
                return
            self.send_response(code, "hunter2" if code == 403 else None)
            if code == 302:
                self.send_header("Location", self.path)
            short = gzip.compress(content)[:400] if name == "cut.json" else content
            self.send_header("Content-Length", str(len(content) + (999 if name == "cut.json" else 0)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(short)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://usr:hunter2@127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "name", ["404.json", "500.json", "403.json", "circle.json", "lies.json", "cut.json", "good_7.json"]
)
@pytest.mark.parametrize(
    "command",
    ["analyze", "analyze --json", "analyze --brief", "inspect", "merge", "convert", "compare", "export", "check"],
)
def test_no_output_holds_a_secret(command: str, name: str, address: str, tmp_path: Path, capfd, good_trace: Path):
    needs.module("remote", "aiohttp")
    url = f"{address}/{name}?sig=SIGNED"
    extra = {
        "merge": ["-o", str(tmp_path / "m.json")],
        "convert": ["-o", str(tmp_path / "c"), "--no-compress"],
        "compare": [str(good_trace)],
        "export": ["--table", "files"],
    }.get(command, [])
    code = main([*command.split(), url, *extra])
    out, err = capfd.readouterr()
    text = out + err + "".join(f"{p} {p.read_text()}" for p in tmp_path.rglob("*") if p.is_file())
    assert code == (0 if name == "good_7.json" else 3), err
    assert [secret for secret in SECRETS if secret in text] == [], text
    assert 'schemaVersion": 1,' not in err


def test_good_files_beside_a_refused_one_are_analyzed_without_its_secrets(address: str, good_trace: Path, capfd):
    needs.module("remote", "aiohttp")
    assert main(["analyze", "--json", str(good_trace), f"{address}/500.json?sig=SIGNED"]) == 0
    out, _ = capfd.readouterr()
    (row,) = [d for d in json.loads(out)["diagnostics"] if d["code"] == "HP114"]
    assert (row["path"], [s for s in SECRETS if s in out]) == ("500.json", [])


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://usr:hunter2@host:80/a.json?sig=SIGNED#x", "https://host:80/a.json"),
        ("https://TOKEN@host/a", "https://host/a"),
        ("http://usr:hun/ter2@host/a", "http://host/a"),
        ("http://usr:h#u?nter2@host/a", "http://host/a"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("http://host:80/a@b/c", "http://host:80/a@b/c"),
        ("s3://bucket/rank?.json", "s3://bucket/rank?.json"),
        ("s3://bucket/rank0.json?versionId=1&sig=SIGNED", "s3://bucket/rank0.json"),
        ("simplecache::https://usr:hunter2@host/a?sig=SIGNED", "simplecache::https://host/a"),
        ("zip://x.json::http://usr:hunter2@host/a.zip?sig=SIGNED", "zip://x.json::http://host/a.zip"),
        ("http:/usr:hunter2@host/a?sig=SIGNED", "http:/host/a"),
        ("/a/b?c@d", "/a/b?c@d"),
    ],
)
def test_addresses_are_shown_bare(address: str, shown: str):
    assert bare_address(address) == without_secrets(address) == shown
    assert InputError(f"{address}: cannot be read", hint=f"see ({address}).").message == f"{shown}: cannot be read"


def test_what_a_library_says_is_one_short_line_without_bytes():
    assert one_line(ValueError("bad 'http://u:p@h/x?sig=1'\nsecond line")) == "ValueError: bad 'http://h/x'"
    assert one_line(ValueError("400, message: b'raw'")) == "ValueError: 400, message"
    assert (one_line(KeyError()), len(one_line(ValueError("x" * 999)))) == ("KeyError", 212)
