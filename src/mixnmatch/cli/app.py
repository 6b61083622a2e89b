"""The group of commands: a table of names, each imported when it is called."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._version import __version__
from mixnmatch.cli.command import own_words
from mixnmatch.cli.terminal import Context, echo, printing


@dataclass(frozen=True)
class CommandEntry:
    """A command: the module here that defines it, and a line about it."""

    module: str
    summary: str


COMMANDS = {
    "demo": CommandEntry("demo", "Calibrate the embedded sample and print a table of methods."),
    "evaluate": CommandEntry("evaluate", "Measure how good and how well calibrated scores are."),
    "fit": CommandEntry("fit", "Learn a calibration map from scores and labels, and save it."),
    "apply": CommandEntry("apply", "Turn scores into calibrated probabilities with a saved map."),
    "adapt": CommandEntry("adapt", "Adapt a saved map to new class frequencies."),
    "decide": CommandEntry("decide", "Choose the cheapest decision for every sample."),
    "compare": CommandEntry("compare", "Rank calibration methods on your data."),
    "recommend": CommandEntry("recommend", "Recommend a method for your data, with reasons."),
    "report": CommandEntry("report", "Write one HTML page about your model's calibration."),
    "playground": CommandEntry("playground", "Write a page to try calibration in the browser."),
    "export": CommandEntry("export", "Write a saved map as an ONNX or PyTorch model."),
    "monitor": CommandEntry("monitor", "Check whether a map in production is still calibrated."),
    "reproduce": CommandEntry("reproduce", "Compute the paper's tables and figures."),
}


class _Terminated(BaseException):
    """The process was asked to end: unfinished files are removed on the way out."""


@contextmanager
def _ending_on_request() -> Iterator[None]:
    """Within this, SIGTERM ends a command as Ctrl-C does, so that nothing unfinished is left behind."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one request is enough
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class LazyGroup(click.Group):
    """A group that lists commands from a table and imports only the one that is called."""

    context_class = Context

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the options of the group."""
        with own_words():
            return super().make_context(info_name, args, parent, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = import_module(f"mixnmatch.cli.{entry.module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, and for a misspelt one say which is meant."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            hint = did_you_mean(name, known) or f". Commands: {', '.join(known)}"
            msg = f"No such command {name!r}{hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; Ctrl-C or SIGTERM ends it with a line and the exit code that shells expect."""
        try:
            with _ending_on_request(), own_words():
                return super().invoke(ctx)
        except _Terminated:
            click.echo("terminated", err=True)
            ctx.exit(128 + signal.SIGTERM)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and how to switch completion on, line by line."""
        for title, lines in (("Examples", EXAMPLES), ("Shell completion", COMPLETION)):
            with formatter.section(title):
                for line in lines:
                    formatter.write_text(line) if line.endswith(".") else formatter.write(f"  {line}\n")


EXAMPLES = (
    "mixnmatch demo",
    "mixnmatch fit val.npz --method ets -o cal.json",
    "mixnmatch evaluate test.npz --map cal.json",
    "mixnmatch apply cal.json new.npz -o calibrated.npz",
)
COMPLETION = (
    'bash  eval "$(_MIXNMATCH_COMPLETE=bash_source mixnmatch)"   in ~/.bashrc',
    'zsh   eval "$(_MIXNMATCH_COMPLETE=zsh_source mixnmatch)"    in ~/.zshrc',
    "fish  _MIXNMATCH_COMPLETE=fish_source mixnmatch | source      in config.fish",
)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mixnmatch", message="%(prog)s %(version)s")
def cli() -> None:
    """Turn the scores of any classifier into calibrated probabilities.

    You need a file with scores of a trained model (logits or probabilities) and labels, for samples that the model was
    not trained on. `mixnmatch COMMAND --help` describes a command and the files it reads.
    """


def main() -> None:
    """Run the command line; what commands do not handle themselves is help that cannot be printed."""
    try:
        with printing():
            cli(prog_name="mixnmatch")
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        echo(f"Error: {error.filename}: {(error.strerror or '').lower()}", err=True)
        sys.exit(1)
