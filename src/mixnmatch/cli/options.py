"""Options that several commands share, and the types behind them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._engine.text import WIDTH
from mixnmatch.cli.command import in_command_line_words
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch.io import ScoreTable

    TextType = click.ParamType[str]
    TextsType = click.ParamType[tuple[str, ...]]
    ChoiceType = click.Choice[str]
else:  # older versions of click have no type parameter
    TextType = TextsType = click.ParamType
    ChoiceType = click.Choice

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)

FILE_HELP = """

    \b
    A file of scores is one of
      .npz      arrays `logits` or `probs`, and `labels`;
                optionally `weights` and `classes`
      .npy      scores, with --labels LABELS.npy
      .csv      a header; a column for each class, and `label`; also .csv.gz
                and .tsv (separated by commas, semicolons or tabs);
                a column `weight` or `weights` is used as weights
      .parquet  the same, or one column of lists; a file or a folder of files
      -         any of these files from standard input
    Scores in .npy, .csv and .parquet are probabilities unless --logits is given
    (in Parquet a column of lists called `logits` holds logits, too).
    """


class Method(TextType):
    """Short name of a calibration method, known to the registry."""

    name = "method"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that there is such a method."""
        from mixnmatch.maps.registry import calibrator

        try:
            calibrator(value)
        except ValueError as error:
            self.fail(in_command_line_words(error), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Methods that start so."""
        from mixnmatch.maps.registry import METHODS

        return [
            CompletionItem(name, help=entry.summary) for name, entry in METHODS.items() if name.startswith(incomplete)
        ]


class Choice(ChoiceType):
    """One of a few words, with a question for one that is misspelt."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Say which words there are."""
        known = ", ".join(self.choices)
        return f"{str(value)!r} is not one of {known}{did_you_mean(value, self.choices)}"


class Names(TextsType):
    """A list separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split the list."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


class Methods(Names):
    """Short names of methods, separated by commas."""

    name = "methods"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Check each name."""
        names = super().convert(value, param, ctx)
        return tuple(Method().convert(name, param, ctx) for name in names)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last name of the list."""
        before, comma, last = incomplete.rpartition(",")
        completions = Method().shell_complete(ctx, param, last)
        return [CompletionItem(f"{before}{comma}{item.value}", help=item.help) for item in completions]


@dataclass(frozen=True)
class Reading:
    """How to read files of scores: the options that the user gave."""

    labels: Path | None
    logits: bool | None
    label_column: str | None
    columns: tuple[str, ...]
    weights: str | None
    importance: bool
    classes: tuple[str, ...] | None

    @property
    def weighting(self) -> str:
        """What weights mean."""
        return "importance" if self.importance else "frequency"

    def read(self, path: Path, *, need_labels: bool = True, like: Any = None) -> ScoreTable:
        """Read a file and check its values; errors name the file.

        What the file leaves open is as in ``like``: a map that is to be applied, or a table that was read before.
        """
        from mixnmatch.cli.display import reporting
        from mixnmatch.cli.inputs import find_scores_of, names_of, read_checked
        from mixnmatch.cli.streams import INPUT_NAME, is_standard, readable

        known: dict[str, Any] = {}
        if hasattr(like, "predict_proba"):
            known = {"logits": like.takes_logits, "classes": like.classes_, "vector_known": like._knows_vector()}
            known["find_columns"] = find_scores_of(like, in_file_order=self.classes is None)
        elif like is not None:
            known = {"logits": like.logits, "classes": names_of(like)}
        with readable(path) as file, reporting("Reading") as progress:
            table = read_checked(file, self, need_labels=need_labels, progress=progress, **known)
        return replace(table, path=Path(INPUT_NAME)) if is_standard(path) else table


# Shown under a heading of their own.
READING = tuple(name for name in Reading.__dataclass_fields__)


def reading_options(function: F) -> F:
    """Options about the file of scores, handed on as one ``reading``."""
    options = (
        click.option("--labels", type=FILE, metavar="FILE", help="Labels, for scores in .npy."),
        click.option(
            "--logits/--probs",
            default=None,
            help="Whether scores are logits or probabilities. In .npz the name of the array decides.",
        ),
        click.option("--label-column", metavar="NAME", help="Column with the labels [default: label]."),
        click.option(
            "--columns",
            type=Names(),
            default=(),
            metavar="A,B,...",
            help="Score columns in order, or patterns such as 'prob_*'; of two classes the second is the positive one.",
        ),
        click.option(
            "--classes", type=Names(), metavar="A,B,...", help="Names of the classes, in order of the columns."
        ),
        click.option(
            "--weights", metavar="NAME", help="Array, column or .npy file with weights [default: weight(s), if any]."
        ),
        click.option("--importance", is_flag=True, help="Weights are importances, not frequencies."),
    )

    def gathered(*args: Any, **settings: Any) -> Any:
        reading = Reading(**{name: settings.pop(name) for name in READING})
        return function(*args, reading=reading, **settings)

    gathered.__doc__ = function.__doc__
    gathered.__name__ = function.__name__
    gathered.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(options):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


def json_option(function: F) -> F:
    """``--json``: for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on stdout.")(function)


def force_option(function: F) -> F:
    """``--force``: overwrite."""
    return click.option("--force", is_flag=True, help="Overwrite existing files.")(function)


def seed_option(function: F) -> F:
    """``--seed``: for resampling and cross-validation."""
    kind = click.IntRange(0)
    return click.option("--seed", type=kind, default=0, show_default=True, metavar="N", help="Seed of random numbers.")(
        function
    )


def list_methods(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Print the methods and stop."""
    if not value or ctx.resilient_parsing:
        return
    from mixnmatch.maps.registry import calibrators

    for method in calibrators():
        lead = f"{method.name:<17}{'*' if method.accuracy_preserving else ' '} "
        echo(textwrap.fill(method.summary, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))
    echo("\n*: never changes the predicted class")
    ctx.exit()


def list_methods_option(function: F) -> F:
    """``--list-methods``: what can be asked for."""
    return click.option(
        "--list-methods",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=list_methods,
        help="List the methods and exit.",
    )(function)


__all__ = [
    "FILE",
    "FILE_HELP",
    "Choice",
    "Method",
    "Methods",
    "Names",
    "Reading",
    "force_option",
    "json_option",
    "list_methods_option",
    "reading_options",
    "seed_option",
]
