"""Fit the simulated ImageNet networks to files of five largest probabilities, and show how well they match.

    python benchmarks/imagenet_simulator_fit.py FOLDER --fit            # prints the parameters of every model
    python benchmarks/imagenet_simulator_fit.py FOLDER -o docs/results  # the tables and the figure of the match

Each FOLDER/MODEL_SOURCE.npz holds top5_probs (n x 5, descending), top5_classes and labels. The fit is by simulated
moments with common random numbers: first what makes the scores, then the truth given the scores.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import least_squares

from imagenet_statistics import (
    CONFIDENCE_EDGES,
    SECOND_EDGES,
    TopFive,
    confusion_shares,
    label_statistics,
    reliability,
    score_statistics,
)
from mixnmatch.experiments.imagenet_simulator import (
    MODELS,
    ImageNetModel,
    _draw_logits,
    simulate,
    true_probabilities,
)

FIT_BLOCKS = 4  # of 1024 images each
# What is above this line of the page is written by hand, what is below it by this program.
MARK = "<!-- From here on written by benchmarks/imagenet_simulator_fit.py -->"
START = ImageNetModel(
    scale=2.05,
    scale_spread=0.4,
    scale_trend=-0.56,
    signal=13.0,
    signal_shape=3.2,
    ambiguity=0.092,
    kind=0.32,
    group=0.17,
    siblings=0.22,
    residual=0.75,
)
# Deviations that count the same in the fit of the scores.
UNITS = {
    "log-odds": 0.15,
    "mean probability at rank 1": 0.01,
    "mean probability at rank 2": 0.003,
    "mean probability at rank": 0.001,
    "mean probability beyond": 0.006,
    "log of the probability": 0.2,
    "log ratio": 0.08,
    "same class": 0.01,
    "spread": 0.03,
}


def unit(name: str) -> float:
    return next(value for start, value in UNITS.items() if name.startswith(start))


def pack(model: ImageNetModel) -> np.ndarray:
    """The parameters of the scores without bounds: logarithms, and log-ratios of the shares."""
    own = 1.0 - model.kind - model.group - model.siblings
    positive = (model.scale, model.scale_spread, model.signal, model.signal_shape, model.ambiguity, model.residual)
    shares = (model.kind / own, model.group / own, model.siblings / own)
    return np.array([*np.log(positive), *np.log(shares), model.scale_trend])


def unpack(x: np.ndarray) -> ImageNetModel:
    shares = np.exp(x[6:9]) / (1.0 + np.exp(x[6:9]).sum())
    names = ("scale", "scale_spread", "signal", "signal_shape", "ambiguity", "residual", "kind", "group", "siblings")
    values = dict(zip(names, [*np.exp(x[:6]), *shares], strict=True))
    return ImageNetModel(**{name: float(value) for name, value in values.items()}, scale_trend=float(x[9]))


def least_squares_from(
    start: np.ndarray, residuals: Callable[[np.ndarray], np.ndarray], steps: int
) -> tuple[float, np.ndarray]:
    """Least squares with differences of 0.05, wide enough for what is left of the noise of common random numbers."""
    found = least_squares(lambda v: residuals(start + v - 1.0), np.ones(len(start)), diff_step=0.05, max_nfev=steps)
    print(f"# sum of squares {2 * found.cost:.1f} in {found.nfev} steps", flush=True)
    return float(found.cost), start + found.x - 1.0


def fit_scores(target: Mapping[str, float], start: ImageNetModel, steps: int) -> ImageNetModel:
    unlabelled = np.zeros(FIT_BLOCKS * 1024, dtype=np.int64)

    def residuals(x: np.ndarray) -> np.ndarray:
        blocks = [_draw_logits(unpack(x), np.random.default_rng(block)) for block in range(FIT_BLOCKS)]
        found = score_statistics(TopFive.from_logits(np.concatenate(blocks), unlabelled))
        return np.array([(found[name] - value) / unit(name) for name, value in target.items()])

    return unpack(least_squares_from(pack(start), residuals, steps)[1])


def fit_truth(real: TopFive, scores: ImageNetModel, steps: int) -> ImageNetModel:
    """The truth given the scores, from the curves of ranks 1 and 2, the shares of the ranks and the class gaps."""
    logits, labels = simulate(FIT_BLOCKS * 1024, seed=1, model=scores)
    top = TopFive.from_logits(logits, labels)
    curves = [reliability(real, rank)[1] for rank in (1, 2)]
    seen = [reliability(top, rank)[2] > 20 for rank in (1, 2)]
    shares = label_statistics(real)
    # Near certainty small deviations count: there are many such images, and a wrong one costs much.
    tolerance = [np.where((curve < 0.02) | (curve > 0.95), 0.003, 0.01) for curve in curves]

    def model(x: np.ndarray) -> ImageNetModel:
        beta, delta, gamma, noise, bias = (float(value) for value in np.exp(x))
        doubt = delta / (1.0 + delta)
        return replace(scores, sharpness=beta, doubt=doubt, doubt_sharpness=gamma, noise=noise, class_bias=bias)

    def residuals(x: np.ndarray) -> np.ndarray:
        chance = np.take_along_axis(true_probabilities(logits, model=model(x)), top.classes, axis=1)
        soft = replace(top, hits=chance)
        found = label_statistics(soft)
        parts = [(reliability(soft, k + 1)[1] - curves[k])[seen[k]] / tolerance[k][seen[k]] for k in range(2)]
        return np.concatenate([*parts, [(found[name] - value) / 0.005 for name, value in shares.items()]])

    starts = np.log([[0.75, 0.1, 0.4, 0.01, 0.4], [1.2, 0.5, 0.7, 0.01, 0.5]])
    found = [least_squares_from(start, residuals, steps) for start in starts]
    return model(min(found, key=lambda pair: pair[0])[1])


def show_parameters(name: str, model: ImageNetModel) -> None:
    print(f'    "{name}": ImageNetModel(')
    for field, value in asdict(model).items():
        print(f"        {field}={value:.4g},")
    print("    ),", flush=True)


def compare(real: TopFive, simulated: TopFive) -> dict[str, tuple[float, float]]:
    rows = {}
    for statistics in (label_statistics, score_statistics, confusion_shares):
        right = statistics(simulated)
        rows |= {name: (value, right[name]) for name, value in statistics(real).items()}
    for rank in (1, 2):
        edges = CONFIDENCE_EDGES if rank == 1 else SECOND_EDGES
        left, right = reliability(real, rank)[1], reliability(simulated, rank)[1]
        for low, high, a, b in zip(edges[:-1], edges[1:], left, right, strict=True):
            rows[f"accuracy at rank {rank} where its probability is from {low:g} to {high:g}"] = (a, b)
    return rows


def page(rows: Mapping[str, Mapping[str, tuple[float, float]]], models: Mapping[str, ImageNetModel]) -> str:
    lines = [MARK, "", "## Real / simulated", ""]
    lines += [f"| | {' | '.join(rows)} |", "|---" * (len(rows) + 1) + "|"]
    plain = [name for name in next(iter(rows.values())) if not name.startswith("accuracy at")]
    for name in plain:
        cells = (f"{real:.3g} / {simulated:.3g}" for real, simulated in (found[name] for found in rows.values()))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for rank in (1, 2):
        start = f"accuracy at rank {rank} where its probability is "
        lines += ["", f"## Accuracy at rank {rank} by its probability, real / simulated", ""]
        lines += [f"| | {' | '.join(rows)} |", "|---" * (len(rows) + 1) + "|"]
        for name in (name for name in next(iter(rows.values())) if name.startswith(start)):
            cells = (f"{real:.3f} / {simulated:.3f}" for real, simulated in (found[name] for found in rows.values()))
            lines.append(f"| {name.removeprefix(start)} | {' | '.join(cells)} |")
    lines += ["", "## Parameters", "", f"| | {' | '.join(rows)} |", "|---" * (len(rows) + 1) + "|"]
    for field in asdict(START):
        lines.append(f"| {field} | {' | '.join(f'{getattr(models[name], field):.3g}' for name in rows)} |")
    return "\n".join(lines) + "\n"


def draw(path: Path, pairs: Mapping[str, tuple[TopFive, TopFive]]) -> None:
    figure = Figure(figsize=(3.1 * len(pairs), 8.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(pairs), squeeze=False)
    looks = (("real", "#000000", "-"), ("simulated", "#D55E00", "--"))
    for column, (name, pair) in zip(axes.T, pairs.items(), strict=True):
        for top, (label, colour, line) in zip(pair, looks, strict=True):
            p = top.probabilities
            odds = np.sort(np.log(p[:, 0] / np.maximum(1.0 - p[:, 0], 1e-7)))
            column[0].plot(odds, np.linspace(0, 1, len(odds)), color=colour, linestyle=line, label=label)
            means, shares, _ = reliability(top)
            column[1].plot(means, shares, color=colour, linestyle=line, marker="o", markersize=3)
            ranks = np.arange(1, 6)
            column[2].plot(ranks, top.hits.mean(axis=0), color=colour, linestyle=line, marker="o", markersize=3)
            column[2].plot(ranks, p.mean(axis=0), color=colour, linestyle=line, marker="^", markersize=3, alpha=0.6)
        column[1].plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
        column[0].set(title=name, xlabel="log-odds of the confidence", xlim=(-4, 14))
        column[1].set(xlabel="confidence")
        column[2].set(xlabel="rank", yscale="log", xticks=ranks)
    axes[0, 0].set_ylabel("share of images below")
    axes[1, 0].set_ylabel("accuracy")
    axes[2, 0].set_ylabel("share of labels (circles),\nmean probability (triangles)")
    axes[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--truth", action="store_true", help="fit the truth only, given the scores")
    parser.add_argument("--steps", type=int, default=12, help="of least squares")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    real = {path.stem.split("_")[0]: TopFive.from_file(np.load(path)) for path in sorted(options.folder.glob("*.npz"))}
    real = {name: top for name, top in real.items() if not options.only or name in options.only}
    models = {name: MODELS[name] for name in real if name in MODELS}
    if options.fit or options.truth:
        for name, top in real.items():
            scores = MODELS.get(name, START)
            if options.fit:
                scores = fit_scores(score_statistics(top), scores, options.steps)
            models[name] = fit_truth(top, scores, options.steps)
            show_parameters(name, models[name])
    if options.output:
        write(options.output, real, models)


def write(folder: Path, real: Mapping[str, TopFive], models: Mapping[str, ImageNetModel]) -> None:
    pairs = {
        name: (top, TopFive.from_logits(*simulate(len(top.hits), seed=2, model=models[name])))
        for name, top in real.items()
    }
    rows = {name: compare(*pair) for name, pair in pairs.items()}
    with (folder / "imagenet_simulator.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "statistic", "real", "simulated"])
        for name, found in rows.items():
            for statistic, values in found.items():
                writer.writerow([name, statistic, *(f"{value:.5g}" for value in values)])
    draw(folder / "imagenet_simulator.png", pairs)
    path = folder / "imagenet_simulator.md"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(old.split(MARK)[0] + page(rows, models), encoding="utf-8")


if __name__ == "__main__":
    main()
