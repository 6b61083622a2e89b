"""``mixnmatch demo``: the main job on the embedded sample, with nothing to prepare."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, Methods, force_option, json_option, list_methods_option
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch.data import Sample

HELP = """Calibrate the embedded sample, compare methods and recommend one.

    The sample is the output of a small network, LeNet-5, on 15000 CIFAR-10 images that it was not trained on. Every
    method is fitted on 5000 of them and evaluated on the other 10000. Nothing is downloaded.

    With --output, write both parts of the sample, the map of the recommended method and the HTML report to a folder, so
    that you can try the other commands.
    """


@click.command(
    "demo",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch demo",
        "mixnmatch demo --output out",
        "mixnmatch demo --methods identity,ts,ets --json",
    ),
)
@click.option(
    "--output", "-o", type=FILE, metavar="DIR", help="Folder to write files to; created if it does not exist."
)
@click.option(
    "--methods", type=Methods(), default=None, metavar="A,B,...", help="Methods to compare [default: the main ones]."
)
@list_methods_option
@force_option
@json_option
def command(output: Path | None, methods: tuple[str, ...] | None, force: bool, as_json: bool) -> None:
    """Fit each method on one part of the sample and evaluate it on the other."""
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.data import load_sample
    from mixnmatch.selection import compare

    targets = {} if output is None else _targets(output, force=force)
    sample = load_sample()
    with reporting("Comparing") as step:
        result = compare(
            sample.logits_cal,
            sample.labels_cal,
            methods=None if methods is None else list(methods),
            evaluation=(sample.logits_eval, sample.labels_eval),
            logits=True,
            progress=step,
        )
    if not as_json:
        echo(f"{click.wrap_text(sample.description, 79)}\n\n{replace(result, left_out=())}")
    with ExitStack() as stack:
        for path in targets.values():
            stack.enter_context(not_overwriting(path, force=force))
        written = _write(targets, sample, methods, result.verdict.method)
    if as_json:
        print_json({
            "sample": sample.description,
            "calibration_samples": len(sample.labels_cal),
            "evaluation_samples": len(sample.labels_eval),
            "verdict": result.verdict,
            "methods": result.results,
            "written": [str(path) for path in written],
        })  # fmt: skip
    else:
        echo("\n".join(_next_steps(written)))


def _targets(folder: Path, *, force: bool) -> dict[str, Path]:
    """Files to be written, once it is clear that they may be."""
    from mixnmatch.io import FileError, check_output

    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "is a file, not a folder")
    names = ["calibration.npz", "evaluation.npz", "map.json"]
    names += ["report.html"] if find_spec("mixnmatch.report") else []
    targets = {name: folder / name for name in names}
    if folder.exists():
        for path in targets.values():
            check_output(path, [path.suffix], force=force)
    return targets


def _write(targets: dict[str, Path], sample: Sample, methods: tuple[str, ...] | None, method: str) -> list[Path]:
    if not targets:
        return []
    import numpy as np

    from mixnmatch.io import write_table
    from mixnmatch.maps.registry import calibrator

    next(iter(targets.values())).parent.mkdir(parents=True, exist_ok=True)
    names = np.array(sample.class_names)
    for part, scores, labels in (
        ("calibration.npz", sample.logits_cal, sample.labels_cal),
        ("evaluation.npz", sample.logits_eval, sample.labels_eval),
    ):
        write_table(targets[part], scores, logits=True, labels=labels, classes=names)
    saved = calibrator(method, logits=True, classes=names).fit(sample.logits_cal, names[sample.labels_cal])
    saved.save(targets["map.json"])
    if "report.html" in targets:
        from mixnmatch._engine.door import rows
        from mixnmatch.cli.report import write

        write(
            targets["report.html"],
            rows(sample.logits_cal, names[sample.labels_cal], logits=True, classes=names),
            evaluation=rows(sample.logits_eval, names[sample.labels_eval], logits=True, classes=names),
            methods=None if methods is None else list(methods),
            title="LeNet-5 on CIFAR-10",
        )
    return list(targets.values())


def _next_steps(written: list[Path]) -> list[str]:
    if not written:
        return ["", "Next: mixnmatch demo --output DIR writes files to try the other commands with."]
    folder = written[0].parent
    return [
        "",
        f"Wrote {', '.join(path.name for path in written)} to {folder}. Next:",
        f"  mixnmatch evaluate {folder / 'evaluation.npz'} --map {folder / 'map.json'}",
        f"  mixnmatch recommend {folder / 'calibration.npz'} --evaluation {folder / 'evaluation.npz'}",
    ]
