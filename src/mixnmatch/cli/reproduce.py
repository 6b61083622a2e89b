"""``mixnmatch reproduce``: the paper's tables and figures from files of scores and labels."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.cli.command import Command, print_json, typed
from mixnmatch.cli.options import FILE, Names, force_option, json_option, seed_option
from mixnmatch.cli.terminal import echo

HELP = """Compute the tables and figures of the Mix-n-Match paper from files of logits and labels.

    MANIFEST is a .toml file with a table [[row]] for each classifier (dataset, model, files, classes, split), or a
    folder: there, X_val.npz and X_test.npz are one classifier, and so is any other .npz with `logits` or `probs` and
    `labels`, and any pickle ((logits_val, y_val), (logits_test, y_test)). Pickles never execute code.

    Results are cached in the output folder. After an interruption, run the same command again: it resumes and gives the
    same numbers. More splits or methods only compute what is missing.

    \b
    Parts for --only
      table1, table2      top-label ECE and calibration gain over random splits
      learning-curves     ECE and accuracy against calibration rows
      table3, table4      expressive power and data efficiency (learning curves)
      figure1, measures   the paper's Figure 1 and its figure of the two measures
      claims, guidelines  what the paper says, beside what the results say
      synthetic           the study of estimators (Section 5.1, Appendix E)
    """
QUICK = {"splits": 3, "slow_splits": 1, "repetitions": 2, "study_repetitions": 20}


@click.command(
    "reproduce",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch reproduce logits/ -o out --quick",
        "mixnmatch reproduce logits.toml -o out --jobs 4",
        "mixnmatch reproduce logits.toml -o out --only table1 --methods ts,ets,irm --splits 20",
        "mixnmatch reproduce logits/ -o out --write-manifest logits.toml",
    ),
)
@click.argument("manifest", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, metavar="FOLDER", help="Folder for everything.")
@click.option("--only", type=Names(), metavar="A,B,...", help="Parts to make [default: all].")
@click.option("--methods", type=Names(), metavar="A,B,...", help="Columns of the tables [default: all of the tables'].")
@click.option("--rows", type=Names(), metavar="A,B,...", help="Rows whose name contains one of these [default: all].")
@click.option("--splits", type=click.IntRange(1), metavar="N", help="Random splits for the tables [default: 100].")
@click.option(
    "--slow-splits",
    type=click.IntRange(0),
    metavar="N",
    help="Splits for methods that take long [default: 10, and 3 from 1000 classes on].",
)
@click.option(
    "--repetitions", type=click.IntRange(1), metavar="N", help="Repetitions of the learning curves [default: 20]."
)
@click.option(
    "--study-repetitions",
    type=click.IntRange(2),
    metavar="N",
    help="Repetitions of the synthetic study [default: 1000].",
)
@click.option("--cache", type=FILE, metavar="FOLDER", help="Folder for results [default: cache, in the output folder].")
@click.option(
    "--study",
    type=FILE,
    metavar="FOLDER",
    help="Folder for the synthetic study [default: synthetic, in the output folder].",
)
@click.option("--quick", is_flag=True, help="A few splits and repetitions, to see everything once.")
@click.option(
    "--jobs", type=int, default=None, metavar="N", help="Processes [default: as many as there are processors]."
)
@click.option("--backend", metavar="NAME", help="Backend of joblib: loky, dask, ray, ... [default: joblib's].")
@click.option("--no-run", is_flag=True, help="Only write tables and page from cached results.")
@click.option("--write-manifest", type=FILE, metavar="FILE.toml", help="Write the manifest of a folder, and stop.")
@seed_option
@force_option
@json_option
def command(
    manifest: Path,
    output: Path,
    only: tuple[str, ...] | None,
    methods: tuple[str, ...] | None,
    rows: tuple[str, ...] | None,
    splits: int | None,
    slow_splits: int | None,
    repetitions: int | None,
    study_repetitions: int | None,
    cache: Path | None,
    study: Path | None,
    quick: bool,
    jobs: int | None,
    backend: str | None,
    no_run: bool,
    write_manifest: Path | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Read the manifest, run, write."""
    from mixnmatch.experiments.reproduce.build import reproduce
    from mixnmatch.experiments.reproduce.manifest import read_manifest

    entries = read_manifest(manifest)
    if write_manifest is not None:
        _write_manifest(entries, write_manifest, force=force, as_json=as_json)
        return
    asked = {"splits": splits, "slow_splits": slow_splits, "repetitions": repetitions}
    asked["study_repetitions"] = study_repetitions
    settings = {key: value for key, value in asked.items() if value is not None}
    if quick:
        settings = QUICK | settings
    study_repetitions = settings.pop("study_repetitions", 1000)
    plan = _plan(entries, only, methods, rows, seed, settings)
    with ExitStack() as stack:
        outcome = reproduce(
            plan,
            output,
            jobs=jobs or os.cpu_count() or 1,
            backend=backend,
            cache=cache,
            study=study,
            study_repetitions=study_repetitions,
            compute=not no_run,
            force=force,
            command=typed().replace(" --no-run", ""),  # what makes the results, from nothing
            progress=_bars(stack),
        )
    failed = [{"row": row, "method": key, "message": text} for (row, key), text in outcome.failures.items()]
    page = output / "index.html"
    if as_json:
        files = [str(path) for path in outcome.files]
        print_json({"output": str(output), "page": str(page), "units": outcome.units, "failed": failed, "files": files})
        return
    for one in failed:
        echo(f"Warning: {one['row']}: {one['method']} failed: {one['message']}", err=True)
    echo(f"Ran {outcome.units} units. Wrote {page} and {len(outcome.files) - 1} other files.")


def _plan(entries: Any, only: Any, methods: Any, rows: Any, seed: int, settings: dict[str, int]) -> Any:
    from mixnmatch.experiments.reproduce.methods import method
    from mixnmatch.experiments.reproduce.run import PARTS, Plan

    for part in only or ():
        if part not in PARTS:
            msg = f"there is no part called {part!r}; parts are {', '.join(PARTS)}{did_you_mean(part, PARTS)}"
            raise click.UsageError(msg)
    for key in methods or ():
        try:
            method(key)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    chosen = tuple(one for one in entries if not rows or any(text.lower() in one.name.lower() for text in rows))
    if not chosen:
        names = ", ".join(one.name for one in entries)
        msg = f"no row is called {' or '.join(repr(text) for text in rows)}; rows are {names}"
        raise click.UsageError(msg)
    options: dict[str, Any] = dict(settings)
    if "slow_splits" in options:
        options["large_slow_splits"] = min(3, options["slow_splits"]) if options["slow_splits"] < 10 else 3
    if methods:
        options["methods"] = methods
    if only:
        options["parts"] = only
    return Plan(chosen, seed=seed, **options)


def _write_manifest(entries: Any, path: Path, *, force: bool, as_json: bool) -> None:
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.experiments.reproduce.manifest import write_manifest
    from mixnmatch.io import check_output

    check_output(path, [".toml"], force=force)
    with not_overwriting(path, force=force):
        write_manifest(entries, path)
    if as_json:
        print_json({"output": str(path), "rows": len(entries)})
    else:
        echo(f"Wrote {path}: {len(entries)} rows.")


def _bars(stack: ExitStack) -> Callable[[str], Any]:
    """A bar for each stage, on a terminal; a new one ends the one before."""
    from mixnmatch.cli.display import reporting

    def start(stage: str) -> Any:
        stack.pop_all().close()
        return stack.enter_context(reporting(stage))

    return start
