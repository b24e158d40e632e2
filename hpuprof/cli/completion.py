"""`hpuprof completion`."""

from __future__ import annotations

import click

from hpuprof.cli.helping import Command

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=Command,
    examples={
        'eval "$(hpuprof completion bash)"': "In ~/.bashrc; bash 4.4 or newer.",
        'eval "$(hpuprof completion zsh)"': "In ~/.zshrc, after compinit.",
        "hpuprof completion fish > ~/.config/fish/completions/hpuprof.fish": "Once.",
    },
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes hpuprof's commands, options and tables in a shell."""
    from click.shell_completion import get_completion_class

    from hpuprof.cli.main import cli

    found = get_completion_class(shell)
    if found is None:  # pragma: no cover
        raise click.BadParameter(f"no completion for {shell}.")
    complete = found(cli, {}, "hpuprof", "_HPUPROF_COMPLETE")
    # Not `source()`: for bash that starts the shell to look at its version, which is not the reader's concern here.
    click.echo(complete.source_template % complete.source_vars())
