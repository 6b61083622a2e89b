"""What all commands share: errors in one line, warnings on stderr, examples in the help, JSON on request."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from mixnmatch._engine.errors import InputError, InputWarning
from mixnmatch._engine.passes import settings
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._engine.text import WIDTH
from mixnmatch.cli.terminal import Context, colour, echo, printing

# How options are called here; the library has a table of the same keys for Python.
COMMAND_LINE = {
    "all": "--all",
    "calibration": "--calibration SCORES",
    "classes": "--classes A,B,...",
    "columns": "--columns",
    "columns_option": "--columns",
    "force": "--force",
    "importance": "--importance",
    "label_column": "--label-column",
    "label_column_option": "--label-column",
    "labels": "--labels LABELS.npy",
    "list_methods": "mixnmatch fit --list-methods lists them",
    "labels_option": "--labels",
    "declare_logits": "pass --logits",
    "logits": "--logits",
    "name_vector": "Give the column the name of the class, or say --classes A,B where the scores are about B",
    "probs": "--probs",
    "say_positive": "pass --classes A,B where the scores are about B",
    "sample_weight": "the weight",
    "weights": "--weights",
}
# Errors that are about the data or the machine, not about the program.
_EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)


class DataError(click.ClickException):
    """An error in a file or its use: one line on stderr, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the line."""
        echo(f"Error: {self.format_message()}", err=True)


class Misuse(click.UsageError):
    """An error in what was typed: how to use the command, and what is wrong."""

    @classmethod
    def of(cls, error: click.UsageError) -> Misuse:
        """An error of click, with a question if an option is misspelt."""
        message = error.format_message()
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            known = [name for param in error.ctx.command.params for name in (*param.opts, *param.secondary_opts)]
            options = [name for name in known if name.startswith("--")]
            message = f"No such option {error.option_name!r}{did_you_mean(error.option_name, options)}"
        return cls(message, error.ctx)

    def show(self, file: Any = None) -> None:
        """Print the usage and the error."""
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), err=True, color=colour())
            click.echo(f"Try '{self.ctx.command_path} --help' for help.\n", err=True)
        echo(f"Error: {self.format_message()}", err=True)


@contextmanager
def own_words() -> Iterator[None]:
    """Within this, errors in what was typed are told in one way."""
    try:
        yield
    except (Misuse, click.exceptions.NoArgsIsHelpError):  # the latter prints the help, with its colours
        raise
    except click.UsageError as error:
        raise Misuse.of(error) from error


class Command(click.Command):
    """A command with examples in its help and ``--debug``, that reports errors in one line."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any):
        super().__init__(*args, **settings)
        self.examples = examples
        self.params.append(
            click.Option(["--debug"], is_flag=True, expose_value=False, callback=_remember, help="Show tracebacks.")
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those about reading files under a heading of their own."""
        from mixnmatch.cli.options import READING

        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Options for reading files": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections["Options for reading files" if param.name in READING else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line where it fits."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    width = WIDTH - 2 if len(example) <= WIDTH - 2 else WIDTH - 8
                    lines = textwrap.wrap(example, width, break_long_words=False, break_on_hyphens=False)
                    formatter.write("  " + " \\\n      ".join(lines) + "\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember what was typed."""
        ctx.meta["mixnmatch.typed"] = shlex.join(["mixnmatch", str(self.name), *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; warnings become lines on stderr, and so do errors unless asked for tracebacks."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("default", category=UserWarning)
            warnings.showwarning = _Said()
            try:
                settings()  # a wrong value in the environment is no fault of a file
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
                raise
            except Exception as error:
                if ctx.meta.get("mixnmatch.debug"):
                    raise
                raise DataError(_explain(error)) from error


def typed() -> str:
    """The command that is running, as it was typed."""
    return str(click.get_current_context().meta["mixnmatch.typed"])


def _remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta["mixnmatch.debug"] = value


def _explain(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this file"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    text = in_command_line_words(error)
    if isinstance(error, _EXPECTED) and text:
        return text
    return f"unexpected {type(error).__name__}: {text}; --debug shows where"


def in_command_line_words(message: BaseException | str) -> str:
    """An error or a warning in one line, with options named as they are typed."""
    text = message.text(COMMAND_LINE) if isinstance(message, InputError | InputWarning) else str(message)
    return " ".join(text.split())


class _Said:
    """Prints warnings as lines on stderr, each text once."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def __call__(self, message: Warning | str, *_args: Any, **_settings: Any) -> None:
        text = in_command_line_words(message)
        if text not in self.texts:
            self.texts.add(text)
            echo(f"Warning: {text}", err=True)


def print_json(value: Any) -> None:
    """Print JSON that any parser takes: numbers that are not finite become null."""
    text = json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    hidden = {letter for letter in text if letter != "\n" and not letter.isprintable()}
    with printing():
        click.echo(text.translate({ord(letter): json.dumps(letter)[1:-1] for letter in hidden}))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict())
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
