"""The output of a reproduction: numbers, tables, figures and the page."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

from mixnmatch._files import atomic_write
from mixnmatch._version import __version__
from mixnmatch.experiments.reproduce import figures
from mixnmatch.experiments.reproduce.claims import check_claims
from mixnmatch.experiments.reproduce.guidelines import check_guidelines
from mixnmatch.experiments.reproduce.methods import LEARNING, method
from mixnmatch.experiments.reproduce.page import (
    Block,
    Code,
    Figure,
    Grid,
    Heading,
    Text,
    statements,
    table_block,
    to_html,
    to_markdown,
)
from mixnmatch.experiments.reproduce.results import Results
from mixnmatch.experiments.reproduce.run import Plan, Record
from mixnmatch.experiments.reproduce.tables import (
    FLOOR_MARK,
    ISOTONIC,
    PAPER_KEYS,
    Table,
    efficiency_table,
    expressivity_table,
    metric_table,
    published_table,
    row_table,
)

__all__ = ["write_all"]

NOISE_TEXT: Final = (
    "Means over random splits, with standard errors for splits that share rows (Nadeau and Bengio 2003). Bold: best "
    "within noise, that is, within two standard errors of the paired difference to the best. A method "
    "with fewer splits than others gets its mean difference to TS on these, added to the mean of TS on all. Tables of "
    "further methods have in bold what is best of all methods, the paper's included. A dash: not run, or no result."
)
MEASURED: Final = {
    "ece": (
        "Top-label ECE¹ (%)",
        "lower is better",
        "the paper's KDE with the bandwidth of the authors' demo code; ° marks what calibrated scores would also have",
    ),
    "ece_floor": (
        "Top-label ECE¹ (%) if it were calibrated",
        "the same estimate with labels drawn from the probabilities themselves, whose error is 0",
        "the KDE cannot say less, and differences between errors of this size mean nothing",
    ),
    "ece_printed": (
        "Top-label ECE¹ (%) with the printed bandwidth",
        "lower is better",
        "the paper's KDE with the rule that the paper prints",
    ),
    "ece_residual": (
        "Top-label ECE¹ (%) by the residual KDE",
        "lower is better",
        "this library's default estimator",
    ),
    "gain": ("Calibration gain ΔECE² (%)", "higher is better", "reduction of the Brier score"),
    "accuracy": ("Accuracy (%)", "higher is better", "beside the errors"),
}


def write_all(
    folder: Path,
    plan: Plan,
    records: Sequence[Record],
    *,
    command: str,
    failures: dict[tuple[str, str], str] | None = None,
    study: Sequence[Block] = (),
    day: date | None = None,
) -> list[Path]:
    """Write all tables, figures and the page of a plan to a folder, and return the files."""
    results = Results(plan.entries, records)
    writer = _Writer(folder, plan, results, records, command, failures or {}, day or date.today())
    return writer.write(study)


class _Writer:
    def __init__(
        self,
        folder: Path,
        plan: Plan,
        results: Results,
        records: Sequence[Record],
        command: str,
        failures: dict[tuple[str, str], str],
        day: date,
    ):
        self.folder, self.plan, self.results, self.records = folder, plan, results, records
        self.command, self.failures, self.day = command, failures, day
        self.files: list[Path] = []

    def write(self, study: Sequence[Block]) -> list[Path]:
        """Write everything."""
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        for part in ("split", "curve"):
            chosen = [record for record in self.records if record["part"] == part]
            if chosen:
                self._numbers(f"{part}s", [_without_times(record) for record in chosen])
        times = [_times(record) for record in self.records if "fit_seconds" in record]
        if times:
            self._numbers("times", times)
        blocks = [*self._front(), *study]
        blocks += self._split_blocks()
        blocks += self._curve_blocks()
        blocks += self._statement_blocks()
        blocks += self._time_block()
        for name, text in (("index.md", to_markdown(blocks)), ("index.html", to_html(blocks))):
            self._put(name, text.encode())
        return self.files

    def _put(self, name: str, content: bytes) -> None:
        path = self.folder / name
        atomic_write(path, content)
        self.files.append(path)

    def _numbers(self, name: str, records: Sequence[dict[str, Any]]) -> None:
        """A list of records as CSV, and as Parquet where that can be written."""
        keys = list(dict.fromkeys(key for record in records for key in record))
        text = io.StringIO()
        sheet = csv.DictWriter(text, keys, lineterminator="\n", restval="")
        sheet.writeheader()
        sheet.writerows({key: _shown(value) for key, value in record.items()} for record in records)
        self._put(f"{name}.csv", text.getvalue().encode())
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            return
        table = pyarrow.table({key: [record.get(key) for record in records] for key in keys})
        path = self.folder / f"{name}.parquet"
        atomic_write(path, lambda file: parquet.write_table(table, file))
        self.files.append(path)

    def _tables(self, tables: Sequence[Table]) -> list[Block]:
        blocks: list[Block] = []
        for table in tables:
            if table.lines and table.columns:
                self._numbers(table.key, table.records())
                blocks += table_block(table)
        return blocks

    def _wanted(self, *parts: str) -> bool:
        return any(part in self.plan.parts for part in parts)

    def _front(self) -> list[Block]:
        machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
        text = (
            f"{self.day.isoformat()}; mixnmatch {__version__}, NumPy {np.__version__}, "
            f"Python {platform.python_version()}; {machine}; seed {self.plan.seed}. TS and ETS are fitted by squared "
            "error and isotonic functions are not smoothed, as in the paper; other methods have their defaults."
        )
        rows = row_table(self.results)
        return [
            Heading("The paper's tables and figures", 1),
            Text("Made from files of scores and labels by one command, in one go or, with the same cache, in several:"),
            Code(self.command),
            Text(text),
            Heading("Rows"),
            Grid(rows[0], rows[1:], left=2),
        ]

    def _split_blocks(self) -> list[Block]:
        if not self._wanted("table1", "table2") or not self.results.rows():
            return []
        blocks: list[Block] = [Heading("Tables 1 and 2: calibration methods"), Text(NOISE_TEXT)]
        paper = [key for key in PAPER_KEYS if key in self.plan.columns]
        others = [key for key in self.plan.columns if key not in PAPER_KEYS]
        asked = [("table1", "ece"), ("table2", "gain")]
        for key, metric in [pair for pair in asked if pair[0] in self.plan.parts]:
            blocks += self._metric_tables(key, metric, paper, others)
            blocks += self._published(metric, paper)
        if "table1" in self.plan.parts:
            blocks += self._floor(paper)
            for name in ("floor", "printed", "residual"):
                blocks += self._metric_tables(f"table1-{name}", f"ece_{name}", paper, others)
        blocks += self._metric_tables("accuracy", "accuracy", paper, others)
        if self.failures:
            failed = [[row, method(key).title, text] for (row, key), text in self.failures.items()]
            blocks += [Heading("Methods that failed", 3), Grid(["row", "method", "message"], failed, left=3)]
        return blocks

    def _floor(self, paper: list[str]) -> list[Block]:
        """How many errors calibrated scores might have as well."""
        columns = [key for key in paper if key != "uncalibrated"]
        tables = [
            metric_table(self.results, metric, columns, key="", title="", caption="") for metric in ("ece", "ece_floor")
        ]
        errors, floors = ([cell for line in one.lines for cell in line.cells if cell.n] for one in tables)
        if not errors:
            return []
        least, middle, most = np.quantile([cell.value for cell in floors], [0, 0.5, 1])
        marked = sum(cell.text.endswith(FLOOR_MARK) for cell in errors)
        text = (
            f"After calibration, {marked} of {len(errors)} errors are not above what calibrated scores would have: "
            f"{least:.1f} to {most:.1f}%, {middle:.1f}% in the median cell."
        )
        return [Text(text)]

    def _published(self, metric: str, paper: list[str]) -> list[Block]:
        columns = [key for key in paper if metric != "gain" or key != "uncalibrated"]
        head, *lines = published_table(self.results, metric, columns)
        if not lines:
            return []
        text = (
            "The paper's numbers beside ours, where it has a network of that name on the same data. Those for CIFAR "
            "were trained by others than the paper's authors; “like DenseNet 161” is simulated."
        )
        return [Heading("Beside the published numbers", 4), Text(text), Grid(head, lines, left=3)]

    def _metric_tables(self, key: str, metric: str, paper: list[str], others: list[str]) -> list[Block]:
        title, direction, how = MEASURED[metric]
        number = {"table1": "Table 1: ", "table2": "Table 2: "}.get(key, "")
        drop = ["uncalibrated"] if metric == "gain" else []
        caption = f"{direction[0].upper()}{direction[1:]}; {how}."
        if metric == "gain":
            caption += " For maps that are not injective the gain is a lower bound."
        tables = []
        for columns, name, more in (
            (paper, f"{number}{title}", False),
            (others, f"{number}{title}, further methods", True),
        ):
            chosen = [column for column in columns if column not in drop]
            tables.append(
                metric_table(
                    self.results,
                    metric,
                    chosen,
                    key=f"{key}-further" if more else key,
                    title=name,
                    caption=caption,
                    against=[column for column in paper if column not in drop] if more else (),
                )
            )
        return self._tables(tables)

    def _curve_blocks(self) -> list[Block]:
        if not self.results.rows("curve") or "curve" not in self.plan.needs:
            return []
        blocks: list[Block] = [Heading("Learning curves")]
        pictures = self.folder / "figures"
        if self._wanted("figure1") and (path := figures.draw_summary(pictures / "figure-1.png", self.results)):
            blocks.append(
                self._figure(path, "Figure 1: data efficiency, accuracy and expressive power, before and after.")
            )
        if self._wanted("learning-curves"):
            drawn = figures.draw_learning_curves(pictures, self.results)
            for name, path in drawn.items():
                what = "one network for each data set, as in the main text" if name == "main" else name
                caption = f"Learning curves ({what}): top-label ECE¹ above, accuracy below; bars are standard errors."
                blocks.append(self._figure(path, caption))
        if self._wanted("measures") and (path := figures.draw_measures(pictures / "measures.png", self.results)):
            blocks.append(self._figure(path, "The two measures: expressive power (left) and data efficiency (right)."))
        tables = []
        if self._wanted("table3"):
            tables += [
                expressivity_table(self.results),
                expressivity_table(self.results, LEARNING[1:], key="table3-all"),
            ]
        if self._wanted("table4"):
            tables += [efficiency_table(self.results), efficiency_table(self.results, ISOTONIC, key="table4-all")]
        self._numbers("learning-curves", self._curve_means())
        return blocks + self._tables(tables)

    def _figure(self, path: Path, caption: str) -> Figure:
        self.files.append(path)
        return Figure(f"figures/{path.name}", caption)

    def _curve_means(self) -> list[dict[str, Any]]:
        rows = []
        for entry in self.results.rows("curve"):
            for key in LEARNING:
                for metric in ("ece", "ece_residual", "brier", "accuracy"):
                    curve = self.results.curve(entry.name, key, metric)
                    for size, mean in zip(curve.sizes, curve.means, strict=True) if curve else ():
                        rows.append(
                            {
                                "row": entry.name,
                                "method": key,
                                "metric": metric,
                                "n_c": size,
                                "mean": mean.value,
                                "standard_error": mean.error,
                                "repetitions": mean.n,
                            }
                        )
        return rows

    def _statement_blocks(self) -> list[Block]:
        blocks: list[Block] = []
        if self._wanted("claims"):
            claims = check_claims(self.results)
            self._numbers("claims", [one.to_dict() for one in claims])
            text = (
                "Better and worse mean beyond two standard errors of the paired difference over splits. A claim about "
                "pairs holds (yes) if three quarters of the rows that differ say so, by ECE¹ and by gain, and fails "
                "(no) if one quarter or less do, by both. Where fewer than a quarter of the rows differ, results "
                "cannot tell."
            )
            blocks += [Heading("The paper's claims"), Text(text), statements(claims, "claim")]
        if self._wanted("guidelines"):
            claims = check_guidelines(self.results)
            self._numbers("guidelines", [one.to_dict() for one in claims])
            text = (
                "Few data: the mean over calibration sets of up to 512 rows; many: the largest set. Complex: 100 "
                "classes or more. The table holds the paper's advice against the results above; it is no advice of its "
                "own, because a choice by ECE is not one by a proper score."
            )
            blocks += [Heading("The guidelines of Appendix G"), Text(text), statements(claims, "guideline")]
        return blocks

    def _time_block(self) -> list[Block]:
        seconds: dict[str, dict[str, list[float]]] = {}
        for record in self.records:
            if "fit_seconds" in record and record["part"] == "split":
                own = seconds.setdefault(record["method"], {})
                own.setdefault(_size_label(record["classes"]), []).append(record["fit_seconds"])
        labels = [label for label in LABELS if any(label in own for own in seconds.values())]
        rows = [
            [method(key).title, *(f"{np.median(own[label]):.3f}" if label in own else "–" for label in labels)]
            for key, own in seconds.items()
        ]
        text = "Median processor seconds of a fit on one core, by the number of classes."
        return [Heading("Time"), Text(text), Grid(["method", *labels], rows)] if rows else []


LABELS: Final = ("2 to 20 classes", "100 classes", "1000 classes")


def _size_label(classes: int) -> str:
    return LABELS[(classes >= 100) + (classes >= 1000)]


def _without_times(record: Record) -> Record:
    """A record without what differs from run to run."""
    return {key: value for key, value in record.items() if not key.endswith("_seconds")}


def _times(record: Record) -> Record:
    chosen = ("part", "row", "classes", "number", "n_c", "n_e", "method")
    return {key: value for key, value in record.items() if key in chosen or key.endswith("_seconds")}


def _shown(value: Any) -> Any:
    return f"{value:.10g}" if isinstance(value, float) else value
