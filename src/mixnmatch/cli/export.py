"""``mixnmatch export``: a saved map for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, force_option, json_option
from mixnmatch.cli.terminal import echo

HELP = """Export a saved map to other runtimes.

    MAP is a file written by `mixnmatch fit`. The ending of the output decides the format:

    \b
      .onnx  a model of standard operators for any ONNX runtime (extra `onnx`)
      .pt2   a PyTorch program, for torch.export.load (needs the extra `torch`)

    The model takes float32 scores, n x L, and gives float32 probabilities. With --classifier the map is appended to a
    classifier, and the model maps its inputs to calibrated probabilities.
    """


@click.command(
    "export",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch export cal.json -o cal.onnx",
        "mixnmatch export cal.json --classifier model.onnx -o calibrated.onnx",
        "mixnmatch export cal.json --classifier model.onnx --scores logits -o calibrated.onnx",
        "mixnmatch export cal.json -o cal.pt2",
    ),
)
@click.argument("map_file", metavar="MAP", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, metavar="FILE", help="File to write: .onnx or .pt2.")
@click.option("--classifier", type=FILE, metavar="MODEL.onnx", help="Append the map to this classifier.")
@click.option("--scores", metavar="NAME", help="Output of the classifier that holds the scores.")
@click.option("--vector", is_flag=True, help="The input is a vector of scores of the positive class (two classes).")
@click.option("--single", is_flag=True, help="Compute in single precision, for accelerators.")
@force_option
@json_option
def command(
    map_file: Path,
    output: Path,
    classifier: Path | None,
    scores: str | None,
    vector: bool,
    single: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Load, export, and say what the file takes and gives."""
    from mixnmatch.cli.display import plural, reporting
    from mixnmatch.cli.inputs import load_map
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.io import check_output
    from mixnmatch.io.files import check_input

    check_output(output, [".onnx", ".pt2"], force=force)
    if scores is not None and classifier is None:
        msg = "--scores names an output of the classifier: pass --classifier too."
        raise click.UsageError(msg)
    if output.suffix == ".pt2" and classifier is not None:
        msg = "--classifier is for .onnx: in PyTorch, put the module behind your network."
        raise click.UsageError(msg)
    if classifier is not None:
        check_input(classifier)
    map_ = load_map(map_file)
    precision = "single" if single else "double"
    with not_overwriting(output, force=force), reporting("Exporting"):
        if output.suffix == ".onnx":
            map_.to_onnx(output, classifier=classifier, output=scores, precision=precision, vector=vector)
        else:
            _write_program(map_, output, precision, vector)
    takes = "logits" if map_.takes_logits else "probabilities"
    if as_json:
        print_json({
            "map": str(map_file),
            "output": str(output),
            "bytes": output.stat().st_size,
            "classes": map_.n_classes_,
            "scores": takes,
            "classifier": None if classifier is None else str(classifier),
            "precision": precision,
            "accuracy_preserving": bool(map_.accuracy_preserving),
        })  # fmt: skip
        return
    source = takes if classifier is None else f"the inputs of {classifier}"
    echo(
        f"Wrote {output} ({output.stat().st_size / 1024:.1f} kB): from {source} to calibrated probabilities of "
        f"{plural(map_.n_classes_, 'class')}."
    )


def _write_program(map_: Any, output: Path, precision: str, vector: bool) -> None:
    module = map_.to_torch(precision=precision)
    import torch

    from mixnmatch._files import atomic_write

    if vector and map_.n_classes_ != 2:
        msg = f"--vector is for two classes, but the map was fitted with {map_.n_classes_}"
        raise click.UsageError(msg)
    example = torch.full((3,) if vector else (3, map_.n_classes_), 0.5)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n")},))
    atomic_write(output, lambda file: torch.export.save(program, file))
