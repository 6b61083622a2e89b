"""Dask arrays on a real cluster of worker processes, reached through the address of its scheduler."""

import logging
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch import evaluation
from mixnmatch._engine import dask as dask_engine
from mixnmatch._engine import fitting
from mixnmatch.maps.registry import METHODS
from mixnmatch.selection import compare

from .conftest import make_problem, softmax

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

ROWS = 600
# What iterative fits are promised to agree to (one-dimensional ones, step functions and sums: to rounding).
PROBABILITIES = 1e-5


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster.scheduler_address) as client,
    ):
        yield client


def lazy(array, chunk=330):
    """The array in chunks of rows."""
    return da.from_array(array, chunks=(chunk, *array.shape[1:]))


def from_file(path, chunk=330):
    """Rows that workers read by themselves."""
    table = np.load(path, mmap_mode="r")
    rows = tuple(min(chunk, len(table) - start) for start in range(0, len(table), chunk))

    def read(block_info):
        start, stop = block_info[None]["array-location"][0]
        return np.load(path, mmap_mode="r")[start:stop]

    chunks = (rows, *((size,) for size in table.shape[1:]))
    return da.map_blocks(read, chunks=chunks, dtype=table.dtype, meta=np.empty((0,) * table.ndim, table.dtype))


@pytest.fixture(scope="module")
def tables():
    return {n_classes: make_problem(ROWS, n_classes, seed=1) for n_classes in (2, 4)}


@pytest.fixture(scope="module")
def files(tables, tmp_path_factory):
    """The tables as Dask arrays of scores and labels."""
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for n_classes, arrays in tables.items():
        paths = folder / f"scores{n_classes}.npy", folder / f"labels{n_classes}.npy"
        for path, array in zip(paths, arrays, strict=True):
            np.save(path, array)
        found[n_classes] = [from_file(path) for path in paths]
    return found


def fit_both(name, logits, y, scores, labels):
    here = mm.calibrator(name, logits=True).fit(logits, y)
    there = mm.calibrator(name, logits=True).fit(scores, labels)
    applied = there.predict_proba(scores)
    assert isinstance(applied, da.Array)
    assert applied.dtype == np.float64
    return name, here.predict_proba(logits), applied.compute()


# With two classes other code runs in these: one problem instead of one for each class, or log-odds.
FOR_TWO = ("ts", "ets", "platt", "beta", "svs", "isotonic", "histogram", "bbq", "irova-ts", "irm-normalised", "iop")


def test_all_maps_agree_with_memory(client, tables, files):
    problems = [(name, *tables[4], *files[4]) for name in METHODS if name not in ("auto", "bcts-auto")]
    problems += [(name, *tables[2], *files[2]) for name in FOR_TWO]
    with ThreadPoolExecutor(12) as pool:  # fits wait for the cluster most of the time
        for name, here, there in pool.map(lambda problem: fit_both(*problem), problems):
            np.testing.assert_allclose(there, here, rtol=0, atol=PROBABILITIES, err_msg=name)


def test_auto_agrees_with_memory(client, tables):
    logits, y = tables[2][0][:200], tables[2][1][:200]
    _, here, there = fit_both("auto", logits, y, lazy(logits, 90), lazy(y, 90))
    np.testing.assert_allclose(there, here, rtol=0, atol=PROBABILITIES)


def test_one_dimensional_fits_agree_closely(client, tables):
    logits, y = tables[4]
    # Classes in two chunks, labels in other chunks than scores: both are put right.
    scores, labels = da.from_array(logits, chunks=(330, 2)), da.from_array(y, chunks=200)
    here = mm.calibrator("ts", logits=True).fit(logits, y)
    assert mm.calibrator("ts", logits=True).fit(scores, labels).beta_ == pytest.approx(here.beta_, rel=1e-10)
    weight = np.arange(ROWS) % 3
    for dtype in (np.float32, np.float64):
        p = softmax(logits).astype(dtype)
        here = mm.calibrator("ts").fit(p, y, weight)
        there = mm.calibrator("ts").fit(lazy(p), y, lazy(weight, 90))
        assert there.beta_ == pytest.approx(here.beta_, rel=1e-10)
        assert there.loss_ == pytest.approx(here.loss_, rel=1e-9)
        assert there.predict_proba(lazy(p)).dtype == dtype
        assert there.total_weight_ == weight.sum()


def test_statistics_do_not_depend_on_chunks(client, tables):
    logits, y = tables[4]
    found = [float(evaluation.brier_score(lazy(logits, chunk), y, logits=True)) for chunk in (600, 170, 13)]
    np.testing.assert_allclose(found, evaluation.brier_score(logits, y, logits=True), rtol=1e-12)


def test_metrics_agree_with_memory(client, tables):
    logits, y = tables[4]
    weight = (np.arange(ROWS) % 3).astype(float)
    scores, labels, weights = lazy(logits), lazy(y, 100), lazy(weight)
    fitted = mm.calibrator("ets", logits=True).fit(logits, y)
    after = fitted.predict_proba(logits)
    here = {"logits": True, "sample_weight": weight}
    there = {"logits": True, "sample_weight": weights}
    for metric in (evaluation.brier_score, evaluation.log_loss, evaluation.accuracy):
        assert float(metric(scores, labels, **there)) == pytest.approx(float(metric(logits, y, **here)), rel=1e-12)
    for estimator in ("kde-residual", "kde-residual-debiased", "kde", "smooth", "histogram"):
        notion = "top-label" if estimator in ("kde", "smooth") else "class-wise"
        settings = {"estimator": estimator, "notion": notion}
        expected = mm.calibration_error(logits, y, **settings, **here)
        found = mm.calibration_error(scores, labels, **settings, **there)
        assert float(found) == pytest.approx(float(expected), rel=1e-10), settings
        assert found.advised_n == expected.advised_n
    for given in (fitted, lazy(after, 50), after):
        gain = mm.calibration_gain(scores, given, labels, **there)
        assert float(gain) == pytest.approx(float(mm.calibration_gain(logits, after, y, **here)), rel=1e-10)
    assert mm.accuracy_preserved(scores, fitted.predict_proba(scores))
    assert not mm.accuracy_preserved(scores, lazy(after[:, ::-1]))
    expected = evaluation.worst_classes(logits, y, logits=True)
    assert evaluation.worst_classes(scores, labels, logits=True) == expected


def test_curves_agree_with_memory(client, tables):
    logits, y = tables[4]
    for settings in ({"kind": "kde"}, {"kind": "histogram", "bins": 10}, {"kind": "kde", "label": 2}):
        here = evaluation.reliability_curve(logits, y, logits=True, **settings)
        there = evaluation.reliability_curve(lazy(logits), lazy(y), logits=True, **settings)
        np.testing.assert_allclose(there.value, here.value, rtol=1e-9)
        np.testing.assert_allclose(there.low, here.low, rtol=1e-9, atol=1e-12)
    folds = {"logits": True, "recalibrator": mm.TemperatureScaling(logits=True), "n_folds": 2}
    here = evaluation.cross_validated_decomposition(logits, y, **folds)
    there = evaluation.cross_validated_decomposition(lazy(logits), lazy(y), **folds)
    assert there.miscalibration == pytest.approx(here.miscalibration, rel=1e-9)


def test_intervals_from_the_grid(client, tables):
    logits, y = tables[4]
    here = mm.calibration_error(logits, y, logits=True, interval=True)
    there = mm.calibration_error(lazy(logits), lazy(y), logits=True, interval=True)
    np.testing.assert_allclose(there.interval, here.interval, atol=0.02)  # other random draws
    assert abs(there.p_value - here.p_value) < 0.05


@pytest.mark.parametrize(
    "settings",
    [
        {"estimator": "sweep"},
        {"estimator": "histogram", "binning": "equal-mass"},
        {"estimator": "dirichlet", "notion": "canonical"},
        {"estimator": "skce", "notion": "canonical"},
    ],
)
def test_what_needs_rows_names_the_grid(client, tables, settings):
    logits, y = tables[4]
    with pytest.raises(ValueError, match=r"in memory.*kde-residual"):
        mm.calibration_error(lazy(logits), y, logits=True, **settings)


def test_what_else_needs_rows_says_so(client, tables):
    logits, y = tables[4]
    scores = lazy(logits)
    with pytest.raises(ValueError, match="grid"):
        evaluation.score_decomposition(scores, y, logits=True)
    with pytest.raises(ValueError, match='kind="kde"'):
        evaluation.reliability_curve(scores, y, logits=True, kind="corp")
    with pytest.raises(ValueError, match="clusters"):
        evaluation.brier_score(scores, y, logits=True, clusters=y)
    with pytest.raises(ValueError, match="all rows at once"):
        (mm.TemperatureScaling(logits=True) >> OwnMap()).fit(scores, y)
    with pytest.raises(ValueError, match="sample"):
        compare(scores, y, logits=True)


class OwnMap:
    """A user's map."""

    def fit(self, scores, y):
        return self

    def predict_proba(self, scores):
        return scores


def test_a_bad_row_is_named(client, tables):
    logits, y = tables[4]
    bad = logits.copy()
    bad[431, 2] = np.nan
    message = "row 431 of the scores holds NaN"
    with pytest.raises(ValueError, match=message):
        mm.calibrator("ts", logits=True).fit(bad, y)
    with pytest.raises(ValueError, match=message):
        mm.calibrator("ts", logits=True).fit(lazy(bad), y)
    fitted = mm.calibrator("ts", logits=True).fit(logits, y)
    with pytest.raises(ValueError, match=message):
        fitted.predict_proba(lazy(bad)).compute()
    with pytest.raises(ValueError, match="row 0 of the scores has a negative entry"):
        mm.calibrator("ts").fit(lazy(logits), y)
    labels = y.copy()
    labels[555] = 7
    with pytest.raises(ValueError, match="label 7 in row 555"):
        mm.calibrator("ts", logits=True).fit(lazy(logits), lazy(labels))
    weight = np.ones(ROWS)
    weight[333] = -1
    with pytest.raises(ValueError, match="sample_weight in row 333"):
        mm.calibrator("ts", logits=True).fit(lazy(logits), y, lazy(weight))
    with pytest.raises(ValueError, match="599 labels for 600 rows"):
        mm.calibrator("ts", logits=True).fit(lazy(logits), lazy(y[1:]))


def test_names_of_classes(client, tables):
    logits, y = tables[4]
    names = np.array(["ant", "bee", "cat", "dog"])
    here = mm.calibrator("ts", logits=True).fit(logits, names[y])
    there = mm.calibrator("ts", logits=True).fit(lazy(logits), lazy(names[y]))
    assert there.beta_ == pytest.approx(here.beta_, rel=1e-10)
    assert there.classes_.tolist() == names.tolist()
    np.testing.assert_array_equal(there.predict(lazy(logits)).compute(), here.predict(logits))
    with pytest.raises(ValueError, match="label 'dog' in row"):
        mm.calibrator("ts", logits=True, classes=["ant", "bee", "cat", "cow"]).fit(lazy(logits), lazy(names[y]))


def test_unknown_and_empty_chunks(client, tables):
    logits, y = tables[4]
    kept = logits[:, 0] > 0.5
    kept[330:] = False  # a chunk without rows
    scores, labels = lazy(logits)[lazy(kept)], lazy(y)[lazy(kept)]
    assert np.isnan(scores.shape[0])
    here = mm.calibrator("irm-ts", logits=True).fit(logits[kept], y[kept])
    there = mm.calibrator("irm-ts", logits=True).fit(scores, labels)
    assert np.isnan(scores.shape[0])  # the user's own array stays as it is
    np.testing.assert_allclose(
        there.predict_proba(scores).compute(), here.predict_proba(logits[kept]), rtol=0, atol=1e-12
    )
    bad = lazy(np.where(np.isfinite(logits), np.nan, logits))[lazy(kept)]
    with pytest.raises(ValueError, match="row 0 of chunk 0 of the scores holds NaN"):
        there.predict_proba(bad).compute()


def test_a_vector_of_scores(client, tables):
    logits, y = tables[2]
    positive = softmax(logits)[:, 1]
    here = mm.calibrator("beta").fit(positive, y)
    there = mm.calibrator("beta").fit(lazy(positive), y)
    applied = there.predict_proba(lazy(positive))
    assert applied.shape == (ROWS, 2)
    np.testing.assert_allclose(applied.compute(), here.predict_proba(positive), rtol=0, atol=1e-10)
    assert float(mm.calibration_error(lazy(positive), y)) == pytest.approx(float(mm.calibration_error(positive, y)))


def test_applying_is_lazy(client, tables):
    logits, y = tables[4]
    fitted = mm.calibrator("ets", logits=True).fit(logits, y)

    def fail(block):
        raise AssertionError

    never = lazy(logits).map_blocks(fail, dtype=np.float64, meta=np.empty((0, 0)))
    applied = fitted.predict_proba(never)
    assert applied.shape == logits.shape
    assert applied.chunks == never.chunks
    assert fitted.predict(never).shape == (ROWS,)
    single = fitted.predict_proba(lazy(logits.astype(np.float32)))
    assert single.dtype == np.float32
    assert single.compute().dtype == np.float32


class LargestTransfer(distributed.WorkerPlugin):
    """Notes every result that a worker holds and every one that it gets from another."""

    def setup(self, worker):
        worker.largest_result = 0
        self.worker = worker

    def transition(self, key, start, finish, **kwargs):
        if finish == "memory":
            worker = self.worker
            worker.largest_result = max(worker.largest_result, worker.state.tasks[key].get_nbytes())


def _largest(dask_worker, since):
    transfers = [*dask_worker.transfer_incoming_log, *dask_worker.transfer_outgoing_log]
    return dask_worker.largest_result, max((log["total"] for log in transfers if log["start"] >= since), default=0)


def test_only_statistics_travel(client):
    # Chunks of 3.2 MB; statistics of temperature scaling and of a kernel estimate are far smaller, and so are the
    # rows of a first look.
    plugin = LargestTransfer()
    client.register_plugin(plugin, name="largest")
    since = time.time()
    rows, n_classes, chunk = 32_000, 50, 8000

    def make(block_info):
        rng = np.random.default_rng(block_info[None]["chunk-location"][0])
        return rng.normal(size=(chunk, n_classes))

    scores = da.map_blocks(
        make, chunks=((chunk,) * (rows // chunk), (n_classes,)), dtype=np.float64, meta=np.empty((0, 0))
    )
    labels = np.arange(rows) % n_classes
    fitted = mm.calibrator("ts", logits=True).fit(scores, labels)
    mm.calibration_error(scores, labels, logits=True)
    mm.calibration_gain(scores, fitted, labels, logits=True)
    for result, transfer in client.run(_largest, since=since).values():
        assert 0 < result < chunk * n_classes * 8 / 4
        assert transfer < chunk * n_classes * 8 / 4
    client.unregister_worker_plugin("largest")


def test_a_killed_worker_changes_nothing(client, tables):
    logits, y = tables[4]

    def slow(block):
        time.sleep(0.1)
        return block

    scores = lazy(logits).map_blocks(slow, dtype=np.float64)
    pids = client.run(os.getpid)
    victim = next(iter(pids.values()))
    killer = threading.Timer(1.0, os.kill, (victim, signal.SIGKILL))
    killer.start()
    there = mm.calibrator("ets", logits=True).fit(scores, y)
    killer.join()
    here = mm.calibrator("ets", logits=True).fit(logits, y)
    assert there.beta_ == pytest.approx(here.beta_, rel=1e-7)
    np.testing.assert_allclose(there.member_weights_, here.member_weights_, atol=1e-6)
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()


@pytest.fixture
def graphs(monkeypatch):
    """Sizes of the graphs of all passes: as Dask makes them, and as they are run."""
    sizes, whole = [], dask_engine._with_larger_leaves

    def noted(graph, leaves):
        found = whole(graph, leaves)
        sizes.append((len(graph), len(found)))
        return found

    monkeypatch.setattr(dask_engine, "_with_larger_leaves", noted)
    return sizes


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
@pytest.mark.parametrize("fused", [None, True, False])
def test_a_pass_has_one_task_for_each_chunk(tables, graphs, fused):
    scores, y = tables[4]
    weight = np.arange(1.0, ROWS + 1)
    with dask.config.set({"scheduler": "synchronous", "optimization.fuse.active": fused}):
        rows = mm.rows(lazy(scores, 100), lazy(y, 100), lazy(weight, 100), logits=True)
        graphs.clear()
        assert rows.total(_count) == ROWS
    ((before, after),) = graphs
    assert after == 6 + 1  # six chunks and their sum
    assert before > 6 + 1 + 2 * 6  # scores, labels and weights would be tasks of their own


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
def test_parts_of_a_chunk_are_read_at_the_same_time(graphs):
    ones = da.ones((600, 3), chunks=(50, 3)).map_blocks(np.sqrt, meta=np.empty((0, 0))) / 3
    with dask.config.set(scheduler="synchronous"):
        rows = mm.rows(ones.rechunk((300, 3)), np.arange(600) % 3)
        graphs.clear()
        assert rows.total(_count) == 600
    ((_, after),) = graphs
    assert after == 12 + 2 + 1  # what is read, the two chunks, and their sum


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_passes_are_counted_and_not_chunks(tables, scheduler, caplog, monkeypatch):
    scores, y = tables[4]
    monkeypatch.setattr(fitting, "SECONDS_BETWEEN_MESSAGES", 0.0)
    ends = []
    for table in (scores, lazy(scores, 50)):
        with dask.config.set(scheduler=scheduler), caplog.at_level(logging.INFO, logger="mixnmatch"):
            mm.calibrator("ts", logits=True).fit(table, y)
        ends.append(int(re.search(r"(\d+) passes", caplog.messages[-1])[1]))
    assert ends[1] <= ends[0] + 3  # rows in memory may be prepared once, and on Dask in each pass


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
def test_a_masked_label_is_refused_as_in_memory(tables):
    scores, y = tables[4]
    masked = scores.copy()
    masked[450, y[450]] = -np.inf
    vector = scores[:, 1].copy()
    vector[20] = -np.inf
    for table, labels in ((masked, y), (vector, np.ones(ROWS, dtype=int))):
        with dask.config.set(scheduler="synchronous"):
            messages = []
            for given in (table, lazy(table, 100)):
                with pytest.raises(ValueError, match="has a label that is masked by a logit of -inf") as error:
                    mm.rows(given, labels, logits=True)
                messages.append(str(error.value))
        assert messages[0] == messages[1]


def _count(block):
    return len(block.values)


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
def test_what_several_chunks_need_is_made_once():
    made = []

    def table():
        made.append(1)
        return np.full((600, 3), 1 / 3)

    whole = da.from_delayed(dask.delayed(table, pure=True)(), (600, 3), np.float64)
    with dask.config.set(scheduler="synchronous"):
        rows = mm.rows(whole.rechunk((100, 3)), np.arange(600) % 3)
        made.clear()
        assert rows.total(_count) == 600
    assert len(made) == 1


@pytest.mark.parametrize("step", [1, 7, 250])
def test_samples_are_those_of_the_table_in_memory(client, tables, step):
    scores, y = tables[4]
    weight = np.arange(1.0, ROWS + 1)
    there, here = mm.rows(lazy(scores, 130), y, weight, logits=True), mm.rows(scores, y, weight, logits=True)
    sample, same = there._every(step), here._every(step)
    np.testing.assert_array_equal(sample.scores.values, same.scores.values)
    np.testing.assert_array_equal(sample.labels, same.labels)
    np.testing.assert_array_equal(sample.weight, same.weight)
    np.testing.assert_array_equal(sample.index, same.index)
    assert not sample.on_dask


def test_statistics_are_sent_in_one_piece():
    import pickle

    from mixnmatch._engine.dask import _Parcel

    value = [(np.arange(3), {"a": np.ones(2)}), ValueError("bad")]
    assert sys.getsizeof(_Parcel([np.zeros(10_000)])) > 80_000  # what Dask believes that it takes
    buffers = []
    sent = pickle.dumps(_Parcel(value), protocol=5, buffer_callback=buffers.append)
    assert not buffers
    (first, second), error = pickle.loads(sent).value
    np.testing.assert_array_equal(first, np.arange(3))
    np.testing.assert_array_equal(second["a"], np.ones(2))
    assert isinstance(error, ValueError)
