"""Drives a headless Chromium for tests over its DevTools protocol, with nothing but the standard library.

Every network name but loopback is made unresolvable, so a page that needs the internet fails here.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


class Browser:
    """One headless Chromium with one page; `console` collects errors and uncaught exceptions of the page."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        assert CHROMIUM
        self.console: list[str] = []
        self.requests: list[str] = []
        self._served: list[tuple[str, bytes, str]] = []
        self._number = 0
        self._buffer = b""
        arguments = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-extensions", f"--user-data-dir={profile}",
            f"--window-size={width},{height}", "--remote-debugging-port=0", "--remote-allow-origins=*",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = profile / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip()):
            assert time.monotonic() < end, "Chromium did not start"
            time.sleep(0.1)
        port = int(port_file.read_text().split()[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
            page = next(target for target in json.load(answer) if target["type"] == "page")
        self._connect(port, page["webSocketDebuggerUrl"].split(str(port), 1)[1])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=30)

    def open(self, url: str) -> None:
        """Go to a page; what it loads afterwards is waited for with `wait`."""
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression: str, *, seconds: float = 60) -> Any:
        """Wait until a JavaScript expression is truthy; return its value."""
        end = time.monotonic() + seconds
        while True:
            try:
                found = self.value(expression)
            except AssertionError:  # the page may still be on its way
                found = None
            if found:
                return found
            assert time.monotonic() < end, f"never true: {expression}; console: {self.console[:5]}"
            time.sleep(0.2)

    def serve(self, pattern: str, body: bytes, kind: str = "text/javascript") -> None:
        """Answer requests whose address matches a pattern (`*` is anything) with these bytes, instead of asking the network."""
        self._served.append((pattern.strip("*"), body, kind))
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{word}*"} for word, _, _ in self._served])

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """Save what is to be seen as PNG; `whole`: the page in its full height."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    # ----------------------------------------------------------------------------------------------------------- protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        number = self._number
        self._send(json.dumps({"id": number, "method": method, "params": parameters}).encode())
        while True:
            message = json.loads(self._receive())
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._event(message)

    def _event(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"])[:500])
        elif message.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.console.append(str(parameters["args"])[:500])
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.console.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"[:500])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message.get("method") == "Fetch.requestPaused":
            self._answer(parameters)

    def _answer(self, paused: dict[str, Any]) -> None:
        word, body, kind = next(served for served in self._served if served[0] in paused["request"]["url"])
        del word
        self._number += 1
        answer = {
            "requestId": paused["requestId"],
            "responseCode": 200,
            "responseHeaders": [{"name": "Content-Type", "value": kind}],
            "body": base64.b64encode(body).decode(),
        }
        self._send(json.dumps({"id": self._number, "method": "Fetch.fulfillRequest", "params": answer}).encode())

    def _connect(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._socket.recv(4096)
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n", 1)[0], head

    def _send(self, data: bytes) -> None:
        size = len(data)
        length = (
            struct.pack("!B", 0x80 | size)
            if size < 126
            else struct.pack("!BH", 0xFE, size)
            if size < 65536
            else struct.pack("!BQ", 0xFF, size)
        )
        mask = os.urandom(4)
        masked = (
            (int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")).to_bytes(size, "big")
            if size
            else b""
        )
        self._socket.sendall(b"\x81" + length + mask + masked)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            piece = self._socket.recv(1 << 20)
            assert piece, "Chromium closed the connection"
            self._buffer += piece
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _receive(self) -> bytes:
        whole = b""
        while True:
            first, second = self._take(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._take(8))
            whole += self._take(size)
            if first & 0x80:
                return whole
