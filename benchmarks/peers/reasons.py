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
_SMALL = (
    "a call on a table of up to two megabytes is mostly checks of the input (finite, on the simplex, right shape), "
    "which the peer does not make, and NumPy's exponential; compiled kernels are loaded for larger tables only, "
    "because loading them takes half a second"
)
_CHECKED = (
    "ours reads every entry to check that rows are probabilities before it takes the top label; the peer reads the "
    "largest entry of each row alone"
)
_KEPT = (
    "logarithms of all entries are computed once and kept in float64 for all passes of the fit; a peer that goes "
    "through the classes one by one needs one column at a time. Tables beyond 4 million entries are not kept"
)
_SAME = "the same problem to a tighter tolerance, in a little more time"
_IN_ROWS = "the whole block of rows is computed at once, in float64, not class by class"
REASONS: dict[tuple[str, str, str], str] = {
    ("import", "import", "fit"): (
        "`BaseEstimator` of scikit-learn brings scipy.stats and pandas along, which is most of it; ours also builds a "
        "map, for which the modules of all maps are imported"
    ),
    ("import", "import", "fit_memory"): "the same: KDEpy does not import scikit-learn",
    ("fit", "ts", "apply"): _SMALL,
    ("fit", "vector", "apply"): (
        "ours takes log-probabilities, so that logits and the probabilities they give lead to the same map: two "
        "exponentials for each entry where the peer, which takes logits as they are, has one"
    ),
    ("fit", "matrix", "apply"): _SMALL,
    ("fit", "dirichlet", "apply"): _SMALL,
    ("fit", "histogram (width)", "apply"): _SMALL,
    ("fit", "platt", "apply"): _SMALL,
    ("fit", "beta", "apply"): "log p and log(1 - p) are both computed, in float64, with care next to 0 and 1",
    ("fit", "ts", "fit_memory"): "less than a tenth of a megabyte apart",
    ("fit", "platt", "fit_memory"): _KEPT,
    ("fit", "beta", "fit_memory"): _KEPT,
    ("fit", "platt", "apply_memory"): _IN_ROWS,
    ("fit", "beta", "apply_memory"): _IN_ROWS,
    ("fit", "irova", "fit_memory"): "all classes are fitted in one pass over the rows, not one after another",
    ("fit", "irova", "apply_memory"): _IN_ROWS,
    ("fit", "histogram (width)", "apply_memory"): _IN_ROWS,
    ("fit", "histogram", "fit_memory"): "a copy of the scores, class by class",
    ("fit", "histogram (width)", "fit_memory"): "less than half a megabyte more: all classes are counted in one pass",
    ("fit", "bbq", "fit_memory"): "two classes are fitted at a time, by two threads",
    ("fit", "iop", "fit_memory"): "half a megabyte more, of tables of rows by knots",
    ("fit", "matrix", "fit"): (
        "the peer has no ridge and is done once its parameters fit the simulated rows; ours minimises a penalised loss "
        "to the end. On the CIFAR-100 network of the quality run it is the other way round: 2.6 s, and none of the "
        "peers within 120 s. With so many classes SMS is the better choice"
    ),
    ("fit", "svs", "fit"): _SAME,
    ("fit", "sms", "fit"): _SAME,
    ("fit", "ets (brier)", "fit"): (
        "the peer takes the temperature of TS and fits the weights alone; ours fits both together and looks for more "
        "than one optimum"
    ),
    ("metric", "accuracy", "fit"): _CHECKED,
    ("metric", "smooth ece", "fit"): _CHECKED,
    ("metric", "kde ece", "fit"): _CHECKED,
    ("metric", "log loss", "fit"): _SMALL,
    ("metric", "ece", "fit"): _SMALL,
    ("metric", "brier", "fit"): _SMALL,
    ("league", "accuracy-preserving", "brier"): (
        "Single maps such as `iop`, below with their intervals, are hard to beat where a stack has to learn its "
        "weights from the same rows."
    ),
}
