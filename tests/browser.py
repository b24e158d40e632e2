"""Drives a headless Chromium for tests through Playwright. One browser serves a process; each `Browser` has a context of its own.

Every network name but loopback is made unresolvable, so a page that needs the internet fails here.
"""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
# Playwright leaves an event loop running in the thread that it is used from; the tests' own thread must have none.
_thread = ThreadPoolExecutor(1, thread_name_prefix="browser")


def require_browser() -> None:
    """Skip, or fail where a browser was promised, when no page can be opened."""
    import needs

    if CHROMIUM is None:
        needs.absent("browser", "no Chromium: apt-get install chromium")
    if find_spec("playwright") is None:
        needs.absent("browser", "needs Playwright: pip install playwright")


@cache
def _running() -> tuple[Any, Any]:
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    return playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))


def stop() -> None:
    """End the browser of this process."""

    def end() -> None:
        playwright, chromium = _running()
        chromium.close()
        playwright.stop()
        _running.cache_clear()

    if _running.cache_info().currsize:
        _thread.submit(end).result()


class Browser:
    """One page; `console` collects its errors and uncaught exceptions, `requests` the addresses that it asked for."""

    def __init__(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.console: list[str] = []
        self.requests: list[str] = []
        _thread.submit(self._begin, width, height, dark).result()

    def _begin(self, width: int, height: int, dark: bool) -> None:
        size = {"width": width, "height": height}
        self._context = _running()[1].new_context(viewport=size, color_scheme="dark" if dark else "light")
        self._page = self._context.new_page()
        self._page.on("console", self._said)
        self._page.on("pageerror", lambda error: self.console.append(str(error)[:500]))
        self._page.on("request", lambda request: self.requests.append(request.url))
        self._protocol = self._context.new_cdp_session(self._page)

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.console.append(f"{message.text} {message.location['url']}"[:500])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        _thread.submit(self._context.close).result()

    def open(self, url: str) -> None:
        """Go to a page; what it loads afterwards is waited for with `wait`."""
        _thread.submit(self._page.goto, url, wait_until="commit").result()

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited.

        As a debugger: neither a page's security policy nor its scripts being switched off stands in the way.
        """
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression: str, *, seconds: float = 180) -> Any:
        """Wait until a JavaScript expression is truthy; return its value."""
        from playwright.sync_api import Error

        end = time.monotonic() + seconds
        while True:
            try:
                found = self.value(expression)
            except (AssertionError, Error):  # the page may still be on its way
                found = None
            if found:
                return found
            assert time.monotonic() < end, f"never true: {expression}; console: {self.console[:5]}"
            _thread.submit(self._page.wait_for_timeout, 100).result()  # answers requests meanwhile

    def serve(self, pattern: str, body: bytes, kind: str = "text/javascript") -> None:
        """Answer requests whose address matches a pattern (`*` is anything) with these bytes, not asking the network."""
        pattern = "**" + pattern.strip("*") + "**"
        _thread.submit(self._page.route, pattern, lambda route: route.fulfill(body=body, content_type=kind)).result()

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return what is to be seen as PNG; `whole`: the page in its full height."""
        png: bytes = _thread.submit(self._page.screenshot, full_page=whole).result()
        return png

    def show(self, name: str, *, whole: bool = False) -> None:
        """Save a screenshot in SCREENSHOTS_DIR, if that is set: to look at, no test does."""
        if folder := os.environ.get("SCREENSHOTS_DIR"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{name}.png").write_bytes(self.screenshot(whole=whole))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        result: dict[str, Any] = _thread.submit(self._protocol.send, method, parameters).result()
        return result
