"""Plots of the page: ratios of time and memory, and win rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers.page import Pair, Result

COLOURS = {"C10": "#4477aa", "C100": "#66ccee", "BIN": "#228833", "INET": "#ccbb44", "BIG": "#ee6677"}
OURS, THEIRS = "#4477aa", "#bbbbbb"


def plot_speed(pairs: list[Pair], path: Path) -> None:
    """Dots of theirs over ours, a row for each method and metric; left of the line the peer is better."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    pairs = [pair for pair in pairs if pair.peer["kind"] in ("fit", "metric")]
    names = list(dict.fromkeys(pair.peer["twin"] for pair in pairs))[::-1]
    height = {name: position for position, name in enumerate(names)}
    figure, axes = plt.subplots(1, 3, figsize=(11, 0.3 * len(names) + 1.5), sharey=True, layout="constrained")
    titles = {"fit": "time to fit or to measure", "apply": "time to apply", "fit_memory": "memory"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        for size, colour in COLOURS.items():
            dots = [(ratio, height[pair.peer["twin"]]) for pair in pairs
                    if pair.peer["size"] == size and (ratio := pair.ratio(column)) is not None]  # fmt: skip
            if dots:
                ax.scatter(*zip(*dots, strict=True), s=22, color=colour, label=size, alpha=0.85)
        ax.set_xscale("log")
        ax.axvline(1, color="black", linewidth=1)
        ax.set_title(f"{title}, theirs / ours", fontsize=10)
        ax.grid(axis="both", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names, fontsize=9)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_quality(results: list[Result], path: Path, shown: int = 20) -> None:
    """Win rates of the best methods over all problems, for the four leagues that the page is about."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    best: dict[tuple[str, str], Result] = {}
    for result in results:
        if result.group == "all problems":
            best[result.kind, result.score] = result
    columns = max(len(best), 1)
    figure, axes = plt.subplots(1, columns, figsize=(4.2 * columns, 5.2), layout="constrained", squeeze=False)
    for ax, ((kind, score), result) in zip(axes[0], best.items(), strict=False):
        lines = result.lines[:shown][::-1]
        colours = [OURS if line.method.startswith("mixnmatch") else THEIRS for line in lines]
        ax.barh([line.method for line in lines], [line.win_rate for line in lines], color=colours)
        ax.set_title(f"{kind}, {score}", fontsize=10)
        ax.tick_params(labelsize=8)
        ax.set_xlim(0, 1)
        ax.set_xlabel("win rate (blue: ours)", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
