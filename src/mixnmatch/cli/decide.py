"""``mixnmatch decide``: the decision with the lowest expected cost for every sample of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch._engine.text import significant
from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, force_option, json_option, reading_options
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch._engine.rows import Rows
    from mixnmatch.decisions.cost_matrix import CostMatrix
    from mixnmatch.io import ScoreTable

HELP = f"""Choose the decision with the lowest expected cost for every sample.

    COSTS.csv has a row for each class and a column for each decision:

    \b
      class,approve,review,reject
      good,0,5,50
      bad,200,20,0

    Decisions need calibrated probabilities: use --map. Labels are optional; with labels, the actual cost is compared
    with that of the best single decision.
    {FILE_HELP}"""


@click.command(
    "decide",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch decide new.npz --costs costs.csv --map cal.json -o decisions.csv",
        "mixnmatch decide test.npz --costs costs.csv --map cal.json --json",
        "mixnmatch decide test.csv --costs costs.csv --abstain 2.5",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--costs", "cost_file", type=FILE, required=True, metavar="COSTS.csv", help="Costs of the decisions.")
@click.option("--map", "map_file", type=FILE, metavar="CAL.json", help="Calibrate with a saved map first.")
@click.option("--abstain", type=float, metavar="COST", help="Allow abstention at this cost.")
@click.option("--output", "-o", type=FILE, metavar="FILE.csv", help="File to write, with a row for each sample.")
@reading_options
@force_option
@json_option
def command(
    scores: Path,
    cost_file: Path,
    map_file: Path | None,
    abstain: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Read, decide, write."""
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import aligned, load_map
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.io import check_output
    from mixnmatch.io.costs import read_costs

    if output is not None:
        check_output(output, [".csv"], force=force)
    costs = read_costs(cost_file)
    map_ = None if map_file is None else load_map(map_file)
    table = reading.read(scores, need_labels=False, like=map_)
    if map_ is not None and map_file is not None:
        table = aligned(table, map_, map_file)
    source = table.checked if map_ is None else table.checked.through(map_)
    names = _class_names(table, map_)
    matrix = _matrix(costs.in_order(names, str(scores)), costs.decisions, abstain, cost_file)
    with reporting("Deciding"):
        decided = Decided.of(table, source, matrix)
    if output is not None:
        with not_overwriting(output, force=force):
            decided.write(output)
    if as_json:
        about_files = {"file": scores, "costs": cost_file, "map": map_file, "output": output}
        print_json({key: None if path is None else str(path) for key, path in about_files.items()} | decided.to_dict())
    else:
        echo(decided.text(map_file, output))


def _class_names(table: ScoreTable, map_: Any) -> list[str]:
    """Names of the columns, as the lines of the cost file name them."""
    from mixnmatch.cli.inputs import names_of

    known = names_of(table)
    if map_ is not None and map_.classes_.tolist() != list(range(map_.n_classes_)):
        known = map_.classes_
    return [str(name) for name in (range(table.n_classes) if known is None else known.tolist())]


def _matrix(values: Any, decisions: tuple[str, ...], abstain: float | None, path: Path) -> CostMatrix:
    from mixnmatch.decisions.cost_matrix import ABSTAIN, CostMatrix
    from mixnmatch.io import FileError

    if abstain is not None and ABSTAIN in decisions:
        raise FileError(path, f"has a decision called {ABSTAIN!r} already; leave out --abstain, or rename it")
    return CostMatrix.of(CostMatrix(values, decisions), n_classes=len(values), abstain=abstain)


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions for the samples of a file, and what they cost."""

    table: ScoreTable
    decisions: Any
    sample_costs: Any
    sample_variances: Any
    shares: dict[str, tuple[int, float]]
    expected: Any
    realised: Any = None
    excess: Any = None
    constant: tuple[str, Any] | None = None

    @classmethod
    def of(cls, table: ScoreTable, source: Rows, matrix: CostMatrix) -> Decided:
        """Decide, and measure if there are labels."""
        import numpy as np

        from mixnmatch.decisions.costs import decide, expected_cost, option_costs

        everyone = replace(source, weight=None)  # those of weight 0 are decided about, too
        chosen = decide(everyone, matrix)
        every = np.concatenate(list(everyone.map_blocks(option_costs, matrix.options)))
        squares = np.concatenate(list(everyone.map_blocks(option_costs, np.square(matrix.options))))
        costs, squares = (each[np.arange(len(chosen)), chosen] for each in (every, squares))
        decisions = matrix.named(chosen)
        expected = expected_cost(source, matrix, decisions)
        options = [*(matrix.decisions or ()), *(["abstain"] if matrix.abstain is not None else [])]
        w = np.ones(len(chosen)) if source.weight is None else source.weight
        shares = {
            str(name): (int((decisions == name).sum()), float(w[decisions == name].sum() / w.sum())) for name in options
        }
        decided = cls(table, decisions, costs, np.maximum(squares - costs**2, 0.0), shares, expected)
        return decided if table.labels is None else decided._measured(matrix)

    def _measured(self, matrix: CostMatrix) -> Decided:
        """With what the decisions cost, given the labels."""
        import numpy as np

        from mixnmatch.decisions.costs import mean_cost

        source, options = self.table.checked, matrix.options
        taken = matrix.indices(self.decisions, source.n_rows)
        names = dict(enumerate(matrix.decisions or ()))
        constants = {name: mean_cost(source, np.full(source.n_rows, k), options) for k, name in names.items()}
        best = min(constants, key=lambda name: float(constants[name]))
        return replace(
            self,
            realised=mean_cost(source, taken, options),
            excess=self._excess(options[source.labels, taken], source.weight),
            constant=(str(best), constants[best]),
        )

    def _excess(self, realised: Any, weight: Any) -> Any:
        """Mean of what the decisions cost more than expected; its chance is that of labels of these probabilities.

        The spread of the costs themselves would not do: if a rare and costly class did not occur, they say nothing
        about what it would have cost.
        """
        import numpy as np

        from mixnmatch.evaluation._means import MeanEstimate

        w = np.ones(len(realised)) if weight is None else np.asarray(weight, dtype=np.float64)
        mean = float(np.average(realised - self.sample_costs, weights=w))
        error = float(np.sqrt(np.sum(w**2 * self.sample_variances)) / w.sum())
        return MeanEstimate(mean, standard_error=error, n_rows=int((w > 0).sum()), n_groups=None, confidence=0.95)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values: dict[str, Any] = {
            "rows": self.table.n_rows,
            "decisions": {name: {"rows": rows, "share": share} for name, (rows, share) in self.shares.items()},
            "expected_cost": self.expected.to_dict(),
        }
        if self.constant is None:
            return values
        best, cost = self.constant
        values |= {"realised_cost": self.realised.to_dict(), "realised_minus_expected": self.excess.to_dict()}
        return values | {"best_single_decision": {"decision": best, "cost": cost.to_dict()}}

    def text(self, map_file: Path | None, output: Path | None) -> str:
        """The result for people."""
        from mixnmatch.cli import display
        from mixnmatch.cli.inputs import about

        counted = [["decision", "samples", "share"]]
        counted += [[name, str(rows), display.percent(share, 1)] for name, (rows, share) in self.shares.items()]
        costs = [["cost per sample", "mean", "95% interval"], ["expected", *_cells(self.expected)]]
        if self.constant is not None:
            costs.append(["measured on the labels", *_cells(self.realised)])
            costs.append([f"always {self.constant[0]}", *_cells(self.constant[1])])
        lines = [about(self.table), "", display.table(counted), "", display.table(costs), ""]
        lines += self._advice(map_file)
        lines += [] if output is None else [f"Wrote {output}."]
        return "\n".join(lines).rstrip()

    def _advice(self, map_file: Path | None) -> list[str]:
        if self.excess is None:
            return []
        low, high = self.excess.interval
        rounding = 1e-9 * abs(float(self.expected))
        if low <= 0 <= high or low != low or abs(float(self.excess)) <= rounding:
            return []
        direction = "more" if self.excess > 0 else "less"
        advice = "calibrate them with --map" if map_file is None else "refit the map on data like these"
        return [f"The decisions cost {direction} than expected, beyond chance: the probabilities are off; {advice}."]

    def write(self, path: Path) -> None:
        """Write a line for each sample."""
        import csv
        import io

        from mixnmatch._files import atomic_write

        labels = self.table.labels
        header = ["decision", "expected_cost", *([] if labels is None else ["label"])]
        columns = [self.decisions.tolist(), [f"{cost:.10g}" for cost in self.sample_costs.tolist()]]
        columns += [] if labels is None else [labels.tolist()]
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(header)
        lines.writerows(zip(*columns, strict=True))
        atomic_write(path, text.getvalue().encode())


def _cells(estimate: Any) -> list[str]:
    from mixnmatch.cli import display

    return [significant(estimate), display.between(estimate.interval, significant)]
