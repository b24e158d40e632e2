"""The `hpuprof` command: finds subcommands, maps errors to exit codes, keeps stdout for the result."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click

from hpuprof import errors
from hpuprof._version import __version__
from hpuprof.messages import one_line, speak, without_secrets

GROUPS = {
    "Analyze": {
        "analyze": "Show what bounds the step and what to change first.",
        "plan": "Rank fixes by the time that they save.",
        "advise": "Predict whether graph mode would help, by how much and how.",
        "compare": "Show what got slower or faster between two runs, and why.",
    },
    "Look": {
        "view": "Open traces in an offline Perfetto.",
        "inspect": "Show what the traces hold: files, ranks, steps, health.",
        "explain": "Explain a finding, diagnostic or obstacle by its code.",
    },
    "Files": {
        "merge": "Write one timeline of all ranks for Perfetto.",
        "convert": "Rewrite traces for the stock TensorBoard tab.",
        "export": "Write one table, or all slices, as CSV, JSON or Parquet.",
        "check": "Check whether viewers can open a trace, and what they lose.",
    },
    "Record": {
        "trigger": "Record a window of a run in progress, on all ranks.",
        "run": "Run a training script and record it, unchanged.",
    },
    "Machine": {
        "doctor": "Check whether this machine can analyze and record.",
        "calibrate": "Measure graph-launch, copy and profiler overhead here.",
        "completion": "Print the completion script for bash, zsh or fish.",
    },
}
COMMANDS = {name: words for commands in GROUPS.values() for name, words in commands.items()}
EXAMPLES = {
    "hpuprof analyze traces/": "what bounds the step, and the first fix",
    "hpuprof plan traces/": "fixes, ranked by the time that they save",
    "hpuprof compare before/ after/": "what got slower or faster, and why",
}
_ABOUT = "hpuprof shows where each training step spends its time, and what to change."
_MORE = "`hpuprof --help` says what each command does, `hpuprof COMMAND --help` how."

_NEW_OBJECTS = 500_000
"""How many more objects there must be before garbage is looked for: 700 in Python, but importing makes 70,000."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that `--help` answers at once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, print the short help and exit 2: a script whose variable is empty must not succeed."""
        if not args and not ctx.resilient_parsing:
            click.echo(first_help(), err=True)
            ctx.exit(errors.EXIT_USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands in reading order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command's module and return it; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"hpuprof.cli.{cmd_name}").command
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, then the commands by group without importing them, then the options."""
        width = max(map(len, COMMANDS))
        for title, entries in {"Examples": EXAMPLES, **GROUPS}.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), words) for name, words in entries.items()])
        click.Command.format_options(self, ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a close name for an unknown command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = errors.did_you_mean(args[0], COMMANDS, most=1, quote="'").capitalize()
            ctx.fail(f"No such command {args[0]!r}. {close}".rstrip())
        return super().resolve_command(ctx, args)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from hpuprof import native

        click.echo(f"hpuprof {__version__}, {native.in_use()}")
        context.exit()


def first_help() -> str:
    """Return what the command says without arguments: what it is, three examples, the commands by group."""
    wide, name = max(map(len, EXAMPLES)), max(map(len, GROUPS))
    examples = [f"  {words:{wide}}  # {why}" for words, why in EXAMPLES.items()]
    groups = [f"  {title:{name}}  {' '.join(commands)}" for title, commands in GROUPS.items()]
    return "\n".join([_ABOUT, "", *examples, "", *groups, "", _MORE])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, subcommand_metavar="COMMAND [ARGS]..."
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Show where each training step spends its time, and what to change.

    Reads PyTorch profiler traces of HPU, CUDA, ROCm, XPU and CPU runs.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; see `docs/reference/cli.md` for what each code means."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    wants_json = not {"--json", "--brief"}.isdisjoint(arguments)
    try:
        result = cli.main(args=arguments, prog_name="hpuprof", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else errors.EXIT_OK
    except errors.HpuprofError as error:
        return _fail(
            error.message,
            error.hint,
            error.code,
            error.exit_code,
            lines=getattr(error, "lines", ()),
            as_json=wants_json,
        )
    except click.UsageError as error:
        hint = f"see `{error.ctx.command_path} --help`" if error.ctx else "see `hpuprof --help`"
        return _fail(_one_line(error), hint, "usage", errors.EXIT_USAGE, as_json=wants_json)
    except click.ClickException as error:
        return _fail(_one_line(error), "", "usage", errors.EXIT_USAGE, as_json=wants_json)
    except (KeyboardInterrupt, click.Abort):
        return errors.EXIT_INTERRUPTED
    except _Ended as signalled:
        return errors.EXIT_SIGNALLED + signalled.number
    except BrokenPipeError:
        # The reader of stdout is gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.EXIT_BROKEN_PIPE
    except Exception as error:  # the one broad except: all but a lack of memory is a bug
        if os.environ.get("HPUPROF_DEBUG"):
            raise
        if errors.memory_ran_out(error):
            error.__traceback__ = None  # its frames hold what took the memory
            words = "not enough memory for these traces"
            return _fail(words, errors.MEMORY_HINT, "memory", errors.EXIT_INPUT, as_json=wants_json)
        detail = one_line(error)
        hint = "please report it; HPUPROF_DEBUG=1 shows the traceback"
        return _fail(f"a bug in hpuprof {__version__}: {detail}", hint, "bug", errors.EXIT_BUG, as_json=wants_json)


def _one_line(error: click.ClickException) -> str:
    """Return click's message; it lists choices one below the other."""
    return without_secrets(error.format_message().replace(":\n\t", ": ").replace(",\n\t", ", "))


def _fail(message: str, hint: str, code: str, exit_code: int, *, as_json: bool, lines: Sequence[str] = ()) -> int:
    from hpuprof.cli.common import say

    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}))
    say(f"hpuprof: {message}")
    for line in lines:
        say(f"  {line}")
    if hint:
        say(f"  hint: {hint}")
    return exit_code


class _Ended(BaseException):
    """The system asked the process to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    signal.signal(number, signal.SIG_DFL)  # asked a second time it ends at once
    raise _Ended(number)


def run() -> None:
    """Run the command line; on SIGTERM (batch systems) and SIGHUP (lost terminal) remove temporary files, too.

    numpy's OpenBLAS starts no threads: they take as long as the rest of numpy, and nothing here is large for them. The
    cyclic garbage collector runs only in commands that last: what is read and measured makes no cycles, and what is
    alive at the end the system frees at once.
    """
    if sys.argv[1:2] == ["run"]:  # a training script, which gets the process as Python makes it
        sys.exit(main())
    gc.set_threshold(_NEW_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        speak(stream)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, _end)
    code = main()
    gc.freeze()
    sys.exit(code)
