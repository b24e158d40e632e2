"""The plugin that TensorBoard loads: routes below `/data/plugin/hpuprof/`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from hpuprof._version import __version__
from hpuprof.render.formats import clean
from hpuprof.render.page import script_hashes
from hpuprof.tensorboard_plugin import responses
from hpuprof.tensorboard_plugin.pages import Pages
from hpuprof.tensorboard_plugin.runs import Runs, RunState

_ASSETS = {"/index.js": "text/javascript", "/style.css": "text/css"}


class _NotFoundError(Exception):
    """The run that was asked for does not exist, or has no report yet."""


def _route(function: Callable[[Any, wrappers.Request], wrappers.Response]) -> Callable[..., Any]:
    """Make a method a WSGI application for GET; missing things answer 404 with a message."""

    @wraps(function)
    def bound(self: Any) -> Any:
        @wrappers.Request.application  # type: ignore[untyped-decorator,unused-ignore]
        def serve(request: wrappers.Request) -> wrappers.Response:
            if request.method not in ("GET", "HEAD"):
                return http_util.Respond(request, "only GET", "text/plain", code=405, headers=[("Allow", "GET, HEAD")])
            try:
                return function(self, request)
            except _NotFoundError as error:
                return http_util.Respond(request, {"error": str(error)}, "application/json", code=404)

        return serve

    return bound


class HpuprofPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """Shows hpuprof's reports of the runs below the log directory."""

    plugin_name = "hpuprof"

    def __init__(self, context: Any, runs: Runs | None = None) -> None:
        super().__init__(context)
        logdir = str(getattr(context, "logdir", "") or "")
        remote = "://" in logdir and not logdir.startswith("file://")
        self.problem = ""
        if runs is None and (not logdir or remote):
            self.problem = (
                f"hpuprof reads traces from a local directory; this TensorBoard shows {logdir or 'none'}. "
                "Copy the traces, or give --logdir the directory that holds them."
            )
        self.pages = Pages()
        self.runs = runs if runs is not None or self.problem else Runs(logdir.removeprefix("file://"))

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the routes."""
        apps = {path: self._asset(path, mime) for path, mime in _ASSETS.items()}
        apps["/runs"] = self._serve_runs()
        apps["/report"] = self._serve_report()
        apps["/report.json"] = self._serve_json()
        apps["/compare"] = self._serve_compare()
        return apps

    def is_active(self) -> bool:
        """Whether there is a run to show; starts the search. Reads names only."""
        if self.runs is None:
            return False
        self.runs.start()
        return bool(self.runs.list()) or (not self.runs.looked and self.runs.any_trace())

    def frontend_metadata(self) -> Any:
        """Return the tab's name and the path of its script."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="hpuprof", disable_reload=True)

    # -------------------------------------------------------------------------------------------------------------
    # routes

    def _asset(self, path: str, mime: str) -> Any:
        @wrappers.Request.application  # type: ignore[untyped-decorator,unused-ignore]
        def serve(request: wrappers.Request) -> wrappers.Response:
            return http_util.Respond(request, responses.asset(path.lstrip("/")), mime)

        return serve

    @_route
    def _serve_runs(self, request: wrappers.Request) -> wrappers.Response:
        """All runs with their state and, where there is one, the answer of their report."""
        states: list[RunState] = []
        if self.runs is not None:
            self.runs.start()
            states = self.runs.list()
        body = {
            "version": __version__,
            "problem": self.problem or (clean(self.runs.problem) if self.runs is not None else ""),
            "logdir": str(self.runs.logdir) if self.runs is not None else "",
            "looked": self.runs is None or self.runs.looked,
            "columns": responses.COLUMNS,
            "runs": [responses.run_row(state) for state in states],
        }
        return http_util.Respond(request, body, "application/json")

    @_route
    def _serve_report(self, request: wrappers.Request) -> wrappers.Response:
        """One report as a page of its own."""
        page = self.pages.packed(self._report(request.args.get("run", "")), ".html")
        return http_util.Respond(
            request, page, "text/html", content_encoding="gzip", csp_scripts_sha256s=script_hashes(drawn=True)
        )

    @_route
    def _serve_json(self, request: wrappers.Request) -> wrappers.Response:
        """One report as the document that `hpuprof analyze --json` prints."""
        document = self.pages.packed(self._report(request.args.get("run", "")), ".json")
        return http_util.Respond(request, document, "application/json", content_encoding="gzip")

    @_route
    def _serve_compare(self, request: wrappers.Request) -> wrappers.Response:
        """Headline numbers of several runs (`run`, repeated) alongside those of one (`base`; default: the first)."""
        names = request.args.getlist("run")
        states = [self._report(name) for name in dict.fromkeys(names)]
        if not states:
            raise _NotFoundError("name the runs to compare: ?run=a&run=b")
        base = self._report(request.args.get("base", states[0].name))
        return http_util.Respond(request, responses.comparison(states, base), "application/json")

    def _report(self, name: str) -> RunState:
        state = self.runs.get(name) if self.runs is not None else None
        if state is None:
            raise _NotFoundError(f"no run {name!r}")
        if state.report is None:
            raise _NotFoundError(f"run {name!r} has no report yet: {state.error or state.status}")
        return state
