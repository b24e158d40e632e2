"""A TensorBoard on loopback, for tests."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Board:
    """A running TensorBoard."""

    url: str
    logdir: Path

    def get(self, path: str, **query: Any) -> tuple[int, Any]:
        """Status and parsed answer of a route; a repeated key is given as a list."""
        url = self.url + path + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
        try:
            with urllib.request.urlopen(url, timeout=180) as answer:
                data = answer.read()
                kind = answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return 200, json.loads(data) if kind == "application/json" else data.decode()

    def wait(self, path: str, ready: Any, *, seconds: float = 180) -> Any:
        """Ask until the answer is ready."""
        end = time.monotonic() + seconds
        while True:
            try:
                status, body = self.get(path)
            except OSError:
                status, body = 0, None
            if status == 200 and ready(body):
                return body
            assert time.monotonic() < end, f"{path} never became ready: {status} {str(body)[:500]}"
            time.sleep(0.3)


def start(logdir: Path, log: Path) -> Iterator[Board]:
    """Run a TensorBoard at a port that the system chooses; its log says which."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=log.parent, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        while not (told := re.search(r" at (http://127\.0\.0\.1:\d+)/ ", log.read_text("utf-8"))):
            assert process.poll() is None, log.read_text("utf-8")
            time.sleep(0.1)
        board = Board(told[1], logdir)
        board.wait("/data/plugins_listing", bool)
        yield board
    finally:
        process.terminate()
        process.wait(timeout=180)
