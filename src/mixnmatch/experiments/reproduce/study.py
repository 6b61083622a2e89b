"""The synthetic study as a part of a reproduction: run once, and read again afterwards."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixnmatch._files import atomic_write
from mixnmatch.experiments.reproduce.page import Block, Figure, Grid, Heading, Text
from mixnmatch.experiments.synthetic import (
    CORRECTED,
    EQUAL_MASS,
    EQUAL_WIDTH,
    PAPER_CASES,
    PAPER_KDE,
    PLAIN,
    run_synthetic,
)

__all__ = ["run_study", "study_blocks"]

SETTINGS = "settings.json"
SHOWN = (EQUAL_WIDTH, EQUAL_MASS, PAPER_KDE, PLAIN, CORRECTED)
PICTURES = (
    ("errors-norm-1.png", "Mean absolute error of estimates of ECE¹ against the number of samples."),
    ("distributions-norm-1.png", "Distribution of the errors of estimates of ECE¹ (Appendix E)."),
    ("errors-norm-2.png", "The same for ECE², with the debiased histograms (Appendix E)."),
)


def run_study(
    folder: Path, *, repetitions: int, seed: int, jobs: int, progress: Callable[[str], None] | None = None
) -> bool:
    """Run the synthetic study into a folder, unless it is there with the same settings; return whether it was run."""
    settings = {"repetitions": repetitions, "seed": seed}
    try:
        if json.loads((folder / SETTINGS).read_text(encoding="utf-8")) == settings:
            return False
    except FileNotFoundError:
        pass
    run_synthetic(folder, repetitions=repetitions, seed=seed, n_jobs=jobs, progress=progress)
    atomic_write(folder / SETTINGS, json.dumps(settings).encode())
    return True


def study_blocks(folder: Path, page: Path) -> list[Block]:
    """What the study found in the paper's two cases, as a part of a page in the folder ``page``."""
    if not (folder / SETTINGS).exists():
        return []
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    with (folder / "errors.csv").open(newline="", encoding="utf-8") as stream:
        rows: list[dict[str, Any]] = [row for row in csv.DictReader(stream) if row["norm"] == "1"]
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    lines, bold = [], []
    for case in PAPER_CASES:
        own = [row for row in rows if (float(row["beta0"]), float(row["beta1"])) == case]
        error_of = {(row["estimator"], row["n"]): float(row["mae"]) for row in own}
        least = {size: min(error_of[name, size] for name in SHOWN) for size in sizes}
        for name in SHOWN:
            lines.append([f"{case}", name, *(f"{error_of[name, size]:.4f}" for size in sizes)])
            bold.append([False, False, *(error_of[name, size] == least[size] for size in sizes)])
    text = (
        f"Mean absolute error of estimates of ECE¹ over {settings['repetitions']} samples, in the paper's two cases; "
        "bold is the lowest. The paper finds its KDE ahead throughout."
    )
    blocks: list[Block] = [Heading("Section 5.1 and Appendix E: the synthetic study"), Text(text)]
    blocks.append(Grid(["case", "estimator", *(f"n = {size}" for size in sizes)], lines, bold, left=2))
    path = Path(os.path.relpath(folder, page)).as_posix()
    blocks += [Figure(f"{path}/{name}", caption) for name, caption in PICTURES if (folder / name).exists()]
    return blocks
