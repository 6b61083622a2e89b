import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixnmatch import TemperatureScaling, calibrator, engine
from mixnmatch._engine import door
from mixnmatch._engine.folds import fold_of
from mixnmatch._engine.passes import available_threads, row_ranges, run_blocks, total
from mixnmatch._engine.prepared import Prepared
from mixnmatch.maps._ensemble_temperature_fit import _gram_statistic
from mixnmatch.maps._temperature_fit import _nll_statistic
from tests.conftest import make_problem, softmax


@pytest.mark.parametrize("name", ["ts", "ets", "vector", "irm", "platt", "bbq"])
def test_labels_and_weights_need_not_be_contiguous(name):
    logits, y = make_problem(200, 3)
    weight = np.arange(200) % 3 + 1.0
    table = np.stack([y, weight], axis=1)
    expected = calibrator(name, logits=True).fit(logits, y, weight).predict_proba(logits)
    for labels, weights in [(table[:, 0].astype(int), table[:, 1]), (np.stack([y, y], axis=1)[:, 0], weight)]:
        found = calibrator(name, logits=True).fit(logits, labels, weights).predict_proba(logits)
        np.testing.assert_array_equal(found, expected)
    calibrator(name, logits=True).fit(logits[::-1], y[::-1], weight[::-1])


def test_ranges_cover_all_rows_once():
    assert row_ranges(10, 8, block_bytes=24) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert row_ranges(2, 10**9) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_block_order(threads):
    with engine(threads=threads):
        assert list(run_blocks(lambda a, b: a, [(k, k + 1) for k in range(50)])) == list(range(50))


def test_an_error_in_a_block_reaches_the_caller():
    def work(start, stop):
        if start == 7:
            msg = "seven"
            raise ZeroDivisionError(msg)
        return start

    with engine(threads=4), pytest.raises(ZeroDivisionError, match="seven"):
        list(run_blocks(work, [(k, k + 1) for k in range(50)]))


def test_passes_inside_passes_do_not_wait_for_each_other():
    def inner(start, stop):
        return sum(run_blocks(lambda a, b: a, [(k, k + 1) for k in range(20)]))

    with engine(threads=4):
        assert total(run_blocks(inner, [(k, k + 1) for k in range(20)])) == 20 * 190


def test_engine_settings_end_with_their_context():
    before = available_threads()
    with engine(threads=7):
        assert available_threads() == 7
    assert available_threads() == before


def test_one_engine_in_several_threads_and_tasks():
    shared, together, before = engine(threads=7), threading.Barrier(4, timeout=10), available_threads()

    def request(_):
        with shared:
            together.wait()
            inside = available_threads()
        return inside, available_threads()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(request, range(4))) == [(7, before)] * 4

    async def task(pause):
        with shared, engine(threads=pause + 1):
            await asyncio.sleep(pause / 100)
            inside = available_threads()
        return inside, available_threads()

    async def tasks():
        return await asyncio.gather(*(task(pause) for pause in (2, 0, 1)))

    assert asyncio.run(tasks()) == [(3, before), (1, before), (2, before)]


@given(n=st.integers(1, 300), block=st.integers(8, 5000), threads=st.integers(1, 4), seed=st.integers(0, 99))
def test_statistics_do_not_depend_on_the_cut(n, block, threads, seed):
    logits, y = make_problem(n, 3, seed=seed, dtype=np.float32)
    weight = np.random.default_rng(seed).integers(0, 3, n) + 1.0
    source = door.rows(logits, y, weight, logits=True)
    for statistic in (_nll_statistic, _gram_statistic):
        whole = source.total(statistic, 0.7, 1e-37)
        with engine(block_bytes=block, threads=threads):
            cut = source.total(statistic, 0.7, 1e-37)
        np.testing.assert_allclose(cut, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_dimensional_fits_agree_to_ten_digits(loss, dtype):
    logits, y = make_problem(5000, 5, seed=1, dtype=dtype)
    whole = TemperatureScaling(loss=loss, logits=True).fit(logits, y).beta_
    for block in (1000, 77777):
        with engine(block_bytes=block, threads=3):
            assert TemperatureScaling(loss=loss, logits=True).fit(logits, y).beta_ == pytest.approx(whole, rel=1e-10)


def test_memory_mapped_files_are_read_in_place(tmp_path):
    logits, y = make_problem(2000, 4, dtype=np.float32)
    np.save(tmp_path / "logits.npy", logits)
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    fitted = TemperatureScaling(logits=True).fit(mapped, y)
    assert fitted.beta_ == TemperatureScaling(logits=True).fit(logits, y).beta_
    np.testing.assert_array_equal(fitted.predict_proba(mapped), fitted.predict_proba(logits))


def test_folds_are_balanced_and_belong_to_the_row():
    folds = fold_of(range(100_000), 5)
    assert np.abs(np.bincount(folds) / 100_000 - 0.2).max() < 0.01
    np.testing.assert_array_equal(fold_of(range(333, 777), 5), folds[333:777])
    assert (fold_of(range(1000), 5, seed=1) != folds[:1000]).any()
    logits, y = make_problem(500, 3)
    source = door.rows(logits, y, logits=True)
    parts = [source.fold(k, 4, keep=True).total_weight() for k in range(4)]
    assert sum(parts) == 500
    assert source.fold(1, 4, keep=False).total_weight() == 500 - parts[1]


def test_sources_look_the_same_through_a_map():
    logits, y = make_problem(100, 3)
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    source = door.rows(logits, y, logits=True).through(fitted)
    np.testing.assert_allclose(source.block(0, 100).probabilities(), fitted.predict_proba(logits), atol=1e-14)


def test_blocks_in_their_three_forms_agree():
    logits, y = make_problem(50, 4)
    p = softmax(logits)
    a = door.rows(logits, y, logits=True).block(0, 50)
    b = door.rows(p, y).block(0, 50)
    np.testing.assert_allclose(a.probabilities(), b.probabilities(), atol=1e-15)
    np.testing.assert_allclose(a.log_probabilities(), b.log_probabilities(), atol=1e-12)


def test_one_map_in_many_threads_gives_one_answer():
    logits, y = make_problem(3000, 5)
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    expected = fitted.predict_proba(logits)
    answers = [None] * 8

    def run(k):
        answers[k] = fitted.predict_proba(logits)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


def test_blas_threads_are_as_before_after_overlapping_fits():
    from threadpoolctl import threadpool_info

    def blas():
        return sorted(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    logits, y = make_problem(3000, 20)
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    before = blas()
    threads = [threading.Thread(target=fitted.predict_proba, args=(logits[: 500 * k],)) for k in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas() == before


def test_rows_prepared_once_or_in_every_pass(monkeypatch):
    logits, y = make_problem(500, 4)
    source = door.rows(logits, y, logits=True)
    kept = Prepared.of(source, _softmax_of_block, 2.0, block_bytes=1024)
    monkeypatch.setattr("mixnmatch._engine.prepared.KEPT_ENTRIES", 0)
    anew = Prepared.of(source, _softmax_of_block, 2.0, block_bytes=1024)
    assert kept.kept
    assert not anew.kept
    expected = softmax(2.0 * logits).sum(axis=0)
    np.testing.assert_allclose(kept.total(_times_sum, 3.0), 3 * expected)
    np.testing.assert_array_equal(kept.total(_times_sum, 3.0), anew.total(_times_sum, 3.0))


def _softmax_of_block(block, beta):
    return softmax(beta * block.values)


def _times_sum(p, factor):
    return factor * p.sum(axis=0)


def test_zeros_beside_ones_are_read_as_half_an_error():
    one_hot = np.eye(3)[[0, 1, 2, 0, 1, 1, 0]]
    checked = door.rows(one_hot, [0, 1, 2, 0, 1, 2, 0])
    assert checked.probability_floor() == pytest.approx(1 / 16)
    assert checked.has_zeros()
    weighted = door.rows(one_hot, [0, 1, 2, 0, 1, 2, 0], [2.0] * 7)
    assert weighted.probability_floor() == pytest.approx(1 / 30)
    softer = door.rows(np.array([[0.0, 0.2, 0.8], [0.1, 0.9, 0.0]]), [1, 2])
    assert softer.probability_floor() == pytest.approx(0.05)
    assert not door.rows(softmax(np.ones((2, 3))), [1, 2]).has_zeros()
