"""`hpuprof completion`."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes hpuprof's commands, options and tables in a shell.

    \b
    bash: eval "$(hpuprof completion bash)"   in ~/.bashrc (bash 4.4 or newer)
    zsh:  eval "$(hpuprof completion zsh)"    in ~/.zshrc, after compinit
    fish: hpuprof completion fish > ~/.config/fish/completions/hpuprof.fish
    """  # noqa: D301  click wants the sign itself before lines that it must not wrap
    from click.shell_completion import get_completion_class

    from hpuprof.cli.main import cli

    found = get_completion_class(shell)
    if found is None:  # pragma: no cover
        raise click.BadParameter(f"no completion for {shell}.")
    complete = found(cli, {}, "hpuprof", "_HPUPROF_COMPLETE")
    # Not `source()`: for bash that starts the shell to look at its version, which is not the reader's concern here.
    click.echo(complete.source_template % complete.source_vars())
