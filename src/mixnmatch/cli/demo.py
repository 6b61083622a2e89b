"""``mixnmatch demo``: the main job on the embedded sample, with nothing to prepare."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from mixnmatch.cli.command import Command, echo, print_json
from mixnmatch.cli.options import FILE, Methods, force_option, json_option, list_methods_option

if TYPE_CHECKING:
    from mixnmatch.data import Sample

# The rows of the paper's Table 1, and compositions that it did not try.
METHODS = ("identity", "ts", "ets", "irm", "irova", "irova-ts", "irm-ets", "dirichlet", "gpc", "sms")
SAVED = "ets"

HELP = """Calibrate the embedded sample and print a table of methods, like the paper's Table 1.

    The sample is the output of a small network, LeNet-5, on 15000 CIFAR-10 images that it was not trained on. Every
    method is fitted on 5000 of them and judged on the other 10000. Nothing is downloaded.

    With --output, the folder gets the two parts of the sample, a calibration map and the HTML report, to try the other
    commands with.
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
@click.option("--output", "-o", type=FILE, metavar="DIR", help="Folder to write files to; made if it does not exist.")
@click.option(
    "--methods", type=Methods(), default=METHODS, metavar="A,B,...", help="Methods, instead of the main ones."
)
@list_methods_option
@force_option
@json_option
def command(output: Path | None, methods: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Fit each method on one part of the sample and judge it on the other."""
    from mixnmatch.cli.display import progress
    from mixnmatch.data import load_sample

    targets = {} if output is None else _targets(output, force=force)
    sample = load_sample()
    results = []
    with progress("Calibrating", len(methods)) as step:
        for name in methods:
            results.append(_judge(name, sample))
            step()
    if not as_json:
        echo(_as_text(sample, results))
    written = _write(targets, sample, methods)
    if as_json:
        print_json({
            "sample": sample.description,
            "calibration_rows": len(sample.labels_cal),
            "evaluation_rows": len(sample.labels_eval),
            "methods": results,
            "written": [str(path) for path in written],
        })  # fmt: skip
    else:
        echo("\n".join(_next_steps(written)))


def _judge(name: str, sample: Sample) -> dict[str, Any]:
    from mixnmatch.evaluation.error import calibration_error
    from mixnmatch.evaluation.gain import calibration_gain
    from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss
    from mixnmatch.registry import calibrator

    start = perf_counter()
    map_ = calibrator(name, logits=True).fit(sample.logits_cal, sample.labels_cal)
    seconds = perf_counter() - start
    after, labels = map_.predict_proba(sample.logits_eval), sample.labels_eval
    gain = calibration_gain(sample.logits_eval, after, labels, logits=True, injective=map_.injective)
    return {
        "method": name,
        "accuracy_preserving": bool(map_.accuracy_preserving),
        "calibration_error": float(calibration_error(after, labels)),
        "calibration_gain": float(gain),
        "calibration_gain_interval": list(gain.interval),
        "calibration_gain_exact": gain.exact,
        "log_loss": float(log_loss(after, labels)),
        "brier_score": float(brier_score(after, labels)),
        "accuracy": float(accuracy(after, labels)),
        "seconds": seconds,
    }


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


def _write(targets: dict[str, Path], sample: Sample, methods: tuple[str, ...]) -> list[Path]:
    if not targets:
        return []
    import numpy as np

    from mixnmatch.io import write_table
    from mixnmatch.registry import calibrator

    next(iter(targets.values())).parent.mkdir(parents=True, exist_ok=True)
    names = np.array(sample.class_names)
    for part, scores, labels in (
        ("calibration.npz", sample.logits_cal, sample.labels_cal),
        ("evaluation.npz", sample.logits_eval, sample.labels_eval),
    ):
        write_table(targets[part], scores, logits=True, labels=labels, classes=names)
    saved = calibrator(SAVED, logits=True, classes=names).fit(sample.logits_cal, names[sample.labels_cal])
    saved.save(targets["map.json"])
    if "report.html" in targets:
        from mixnmatch.cli.report import write

        write(
            targets["report.html"],
            (sample.logits_cal, names[sample.labels_cal]),
            evaluation=(sample.logits_eval, names[sample.labels_eval]),
            logits=True,
            classes=names,
            methods=list(methods),
            title="LeNet-5 on CIFAR-10",
        )
    return list(targets.values())


def _as_text(sample: Sample, results: list[dict[str, Any]]) -> str:
    from mixnmatch.cli import display

    header = ("method", "ECE", "gain", "95% interval", "log loss", "Brier", "accuracy", "fit")
    rows = [header]
    for result in results:
        low, high = result["calibration_gain_interval"]
        none = result["method"] == "identity"
        rows.append(
            (
                "uncalibrated" if none else result["method"],
                display.percent(result["calibration_error"]),
                "" if none else f"{100 * result['calibration_gain']:+.3f}%",
                "" if none else f"[{100 * low:.2f}, {100 * high:.2f}]",
                display.number(result["log_loss"]),
                display.number(result["brier_score"]),
                display.percent(result["accuracy"]) + (" " if result["accuracy_preserving"] else "*"),
                f"{result['seconds']:.2f} s",
            )
        )
    best = max(results, key=lambda result: result["calibration_gain"])
    lines = [
        click.wrap_text(sample.description, 79),
        "",
        display.table(rows),
        "",
        "ECE: top-label calibration error, residual kernel estimate; lower is better.",
        "gain: calibration gain, the reduction in squared error; higher is better.",
        "* the method may change the predicted class.",
        f"Largest gain: {best['method']}. `mixnmatch compare` tells which differences are more than chance.",
    ]
    return "\n".join(lines)


def _next_steps(written: list[Path]) -> list[str]:
    if not written:
        return ["", "Next: mixnmatch demo --output DIR writes the sample's files to try the other commands with."]
    folder = written[0].parent
    return [
        "",
        f"Wrote {', '.join(path.name for path in written)} to {folder}. Next:",
        f"  mixnmatch evaluate {folder / 'evaluation.npz'} --map {folder / 'map.json'}",
        f"  mixnmatch fit {folder / 'calibration.npz'} --method irm -o irm.json",
    ]
