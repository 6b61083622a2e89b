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
_SMALL = (
    "a call of less than a millisecond: ours checks that numbers are finite and hands each thread a block, which costs "
    "the more the busier the machine is"
)
_BRIEF = (
    "ours checks scores and labels and computes a standard error, the peer computes the number alone; for tables of "
    "less than a megabyte that is most of the call"
)
_BOTH = "log p and log(1 - p) are both computed, in float64, with care next to 0 and 1"
_CHECKED = (
    "ours reads every entry to check that rows are probabilities before it takes the top label; the peer reads the "
    "largest entry of each row alone"
)
_KEPT = (
    "less than a megabyte more: each thread has one class at a time, in float64, and the normalising constants of all "
    "samples are kept"
)
_SAME = "the same problem to a tighter tolerance, in a little more time"
_EDGES = "the edges of each class are its own, and every entry is searched among them"
_BESIDE = "a block of one or two megabytes for each thread beside the output"
_IN_ROWS = "a block of rows in float64 for each thread beside the output"
ERROR_REASON = (
    "\nAn error of the top label is no proper score: a map can have a small one and tell little. Where `KeepWinner` "
    "keeps a prediction that the map inside would change, the row as a whole is the best that keeps it, and the "
    "confidence in the winner is too high.\n"
)
# (kind, twin, column) of the speed table -> why the peer wins, or why it stays so.
REASONS: dict[tuple[str, str, str], str] = {
    **{("fit", twin, "apply"): _SMALL for twin in ("ts", "dirichlet")},
    ("fit", "matrix", "apply"): (
        "both products of matrices take equally long; ours also takes the logarithm of the softmax before it, so that "
        "logits and the probabilities they give lead to the same map, and keeps BLAS to one thread beside its own"
    ),
    ("fit", "vector", "apply"): (
        "ours takes log-probabilities, so that logits and the probabilities they give lead to the same map: two "
        "exponentials for each entry where the peer, which takes logits as they are, has one"
    ),
    ("fit", "histogram (width)", "apply"): _EDGES,
    **{("fit", twin, "apply"): _BOTH for twin in ("platt", "beta")},
    **{("fit", twin, "fit_memory"): _KEPT for twin in ("platt", "beta")},
    **{("fit", twin, "apply_memory"): _IN_ROWS for twin in ("platt", "beta", "irova", "histogram (width)")},
    **{("fit", twin, "apply_memory"): _BESIDE for twin in ("ts", "vector", "matrix")},
    ("fit", "ts", "fit_memory"): "less than a fifth of a megabyte apart",
    ("fit", "irova", "fit_memory"): "all classes are counted in one pass over the rows, of which 16 columns are copied",
    ("fit", "histogram", "fit_memory"): "the scores of 16 classes at a time are copied and sorted",
    ("fit", "histogram (width)", "fit_memory"): "less than half a megabyte more: all classes are counted in one pass",
    ("fit", "bbq", "fit_memory"): (
        "the fitted map holds all edges of all likely binnings: 7 MB for 100 classes. The peer's log loss is higher in "
        "46 of the 48 problems of the quality run that it can fit, but lower here, where labels of tiny scores are "
        "frequent"
    ),
    ("fit", "iop", "fit_memory"): "log-probabilities of all rows and their places between knots, in float64",
    ("fit", "matrix", "fit"): (
        "the peer has no ridge and is done once its parameters fit the simulated rows; ours minimises a penalised loss "
        "to the end. On the six CIFAR-100 networks of the quality run, on a busy machine, ours takes 1.1 to 15 s, for "
        "a log loss of 1.2 to 3.9 on new rows, probmetrics 2.8 to more than 120 s, for 5 to 33. With so many classes "
        "SMS is the better choice"
    ),
    **{("fit", twin, "fit"): _SAME for twin in ("svs", "sms")},
    **{
        ("fit", twin, "fit"): (
            "the peer takes the temperature of TS and fits the weights alone; ours fits both together and looks for "
            "more than one optimum"
        )
        for twin in ("ets", "ets (brier)")
    },
    **{("metric", twin, "fit"): _CHECKED for twin in ("accuracy", "smooth ece", "kde ece")},
    **{("metric", twin, "fit"): _BRIEF for twin in ("log loss", "ece", "brier")},
}
