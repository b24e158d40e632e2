"""`hpuprof explain`."""

from __future__ import annotations

import os

import click

from hpuprof.cli.common import json_option
from hpuprof.cli.helping import Command
from hpuprof.errors import UsageError, did_you_mean


def _complete_code(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from hpuprof.report.explanations import all_codes

    return [entry["code"] for entry in all_codes() if entry["code"].startswith(incomplete.upper())]


@click.command(
    "explain",
    cls=Command,
    examples={
        "hpuprof explain HP203": "What a code means and what helps.",
        "hpuprof explain traces/": "All codes, those found in these traces first.",
    },
)
@click.argument("what", required=False, metavar="[CODE|PATH]", shell_complete=_complete_code)
@json_option
def command(what: str | None, as_json: bool) -> None:
    """Explain a finding (HP2xx), diagnostic (HP1xx) or obstacle (HP3xx).

    Without CODE, list all by group; with the PATH of traces or of a saved report, those found in it first.
    """
    import json

    from hpuprof.report.explanations import all_codes, by_group, explain

    found = explain(what) if what else None
    if what is not None and found is None and not os.path.lexists(what):
        known = [entry["code"] for entry in all_codes()]
        raise UsageError(
            f"no code {what!r}, and no such file",
            hint=did_you_mean(what.upper(), known, "`hpuprof explain` lists all"),
        )
    if found is not None:
        click.echo(json.dumps(found, indent=1) if as_json else _one(found), nl=as_json)
        return
    here = _codes_in(what) if what else []
    if as_json:
        click.echo(json.dumps([{**entry, "found": entry["code"] in here} for entry in all_codes()], indent=1))
        return
    for title, entries in by_group(here):
        click.echo(title)
        for entry in entries:
            click.echo(f"  {entry['code']}  {entry['title']}")
        click.echo("")
    click.echo("`hpuprof explain CODE` says what a code means, how it is found and what helps.")


def _one(found: dict[str, str]) -> str:
    texts = [
        click.wrap_text(found[label], 78, initial_indent=f"  {label}: ", subsequent_indent="    ")
        for label in ("severity", "meaning", "found when", "advice")
        if found.get(label)
    ]
    return "\n".join([f"{found['code']}  {found['title']}", *texts, ""])


def _codes_in(path: str) -> list[str]:
    """Return the codes that an analysis of traces, or a saved report, found: findings, obstacles, diagnostics."""
    from hpuprof import api
    from hpuprof.cli.choosing import refuse_several

    if api.is_report(path):
        report = api.read_report(path)
    else:
        run = api.load(path)
        refuse_several(run)
        report = api.analyze(run)
    data = report.data
    codes = [*(f.code for f in report.findings), *(o.code for o in data.obstacles), *(d.code for d in data.diagnostics)]
    return list(dict.fromkeys(codes))
