"""What the tables cannot say: why a package or a method does not take part, and why a peer wins where it does."""

from __future__ import annotations

NOT_PUBLISHED = {
    "Gaussian-process calibration of Wenger et al.": "is not published as a package; `pycalib` is another project",
}
LEFT_OUT = {
    "MAPIE, TopLabelCalibrator": "gives the probability of the top label alone, NaN for the others: no proper score",
    "venn-abers, one-vs-one": "is what MAPIE runs, with the same code",
    "probmetrics, SoftPlusCalibrator": "its authors call it work in progress and very slow",
    "probmetrics, DirichletCalibrator": "needs dirichletcal, which does not install",
    "probmetrics, CenteredIsotonicRegressionCalibrator": "needs cir-model, which nothing else here needs",
    "probmetrics, tree and kernel calibrators": "train boosted trees, or smooth over all rows",
}
# (kind, twin, column) of the speed table or ("league", league, score) -> why the peer wins, or why it stays so.
REASONS: dict[tuple[str, str, str], str] = {}
