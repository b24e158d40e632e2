"""`hpuprof explain`."""

from __future__ import annotations

import click

from hpuprof.cli.common import json_option
from hpuprof.errors import UsageError, did_you_mean


def _complete_code(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    from hpuprof.report.explanations import all_codes

    return [entry["code"] for entry in all_codes() if entry["code"].startswith(incomplete.upper())]


@click.command("explain")
@click.argument("code", required=False, shell_complete=_complete_code)
@json_option
def command(code: str | None, as_json: bool) -> None:
    """Explain a finding (HP2xx), diagnostic (HP1xx) or obstacle (HP3xx). Without CODE, list all."""
    from hpuprof.report.explanations import all_codes, explain

    if code is None:
        if as_json:
            import json

            click.echo(json.dumps(all_codes(), indent=1))
        else:
            for entry in all_codes():
                click.echo(f"{entry['code']}  {entry['title']}")
        return
    found = explain(code)
    if found is None:
        known = [entry["code"] for entry in all_codes()]
        raise UsageError(
            f"no code {code!r}", hint=did_you_mean(code.upper(), known, "`hpuprof explain` lists all codes")
        )
    if as_json:
        import json

        click.echo(json.dumps(found, indent=1))
        return
    click.echo(f"{found['code']}  {found['title']}")
    for label in ("severity", "meaning", "found when", "advice"):
        if found.get(label):
            click.echo(click.wrap_text(found[label], width=78, initial_indent=f"  {label}: ", subsequent_indent="    "))
