"""Files of monitors: round trip, strict reading, and several writers."""

import json
import multiprocessing
import time

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._documents import checksum
from mixnmatch.monitoring import Monitor, StateFileError
from mixnmatch.monitoring.monitor import OPEN_STEPS
from mixnmatch.monitoring.state import locked
from mixnmatch.persistence import MapFileError
from tests.conftest import draw_labels, softmax


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(500, 3))
    names = np.array(["a", "b", "c"])
    return mm.calibrator("ts", logits=True).fit(logits, names[draw_labels(softmax(logits), rng)])


def batch(seed, n=50):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3))
    return logits, np.array(["a", "b", "c"])[draw_labels(softmax(logits), rng)]


@pytest.mark.parametrize("steps", [0, 1, OPEN_STEPS + 3])
def test_round_trip(fitted, tmp_path, steps):
    path = tmp_path / "state.json"
    monitor = Monitor(fitted, alpha=0.01)
    for step in range(steps):
        monitor.update(*batch(step, 20), step=f"day {step}", source=str(step))
    monitor.save(path)
    again = Monitor.load(path, fitted)
    # As text: an offset without samples is NaN, which does not equal itself in results from Python 3.13 on.
    assert repr(again.result()) == repr(monitor.result())
    assert str(again.history) == str(monitor.history)
    # Both go on in the same way, to the last bit.
    for key in ("day 0", "new"):
        assert again.update(*batch(99), step=key) == monitor.update(*batch(99), step=key)
    assert again.has_counted("0") == (steps > 0)


def test_an_impossible_event_survives(tmp_path):
    fitted = mm.maps.Identity().fit([0.2, 0.8], [0, 1])
    monitor = Monitor(fitted)
    monitor.update([0.0, 0.3], [1, 0])
    monitor.save(tmp_path / "state.json")
    result = Monitor.load(tmp_path / "state.json", fitted).result()
    assert result.alarm
    assert result.impossible == 1


def test_another_map_is_refused(fitted, tmp_path):
    path = tmp_path / "state.json"
    Monitor(fitted).save(path)
    other = mm.calibrator("ts", logits=True).fit(*batch(7))
    with pytest.raises(StateFileError, match="another map"):
        Monitor.load(path, other)
    with pytest.raises(MapFileError, match="not a map file"):
        mm.load(path)
    fitted.save(tmp_path / "map.json")
    with pytest.raises(StateFileError, match="not a monitor file"):
        Monitor.load(tmp_path / "map.json", fitted)


def edited(path, change):
    document = json.loads(path.read_text())
    change(document)
    document.pop("sha256", None)
    document["sha256"] = checksum(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["state"].pop("folded"),
        lambda d: d["state"].update(more=1),
        lambda d: d["state"].update(closed=1),
        lambda d: d["state"].update(closed=-1),
        lambda d: d["state"].update(impossible=True),
        lambda d: d["state"].update(peak="high"),
        lambda d: d["state"].update(steps={}),
        lambda d: d["state"]["steps"][0].update(key=2.5),
        lambda d: d["state"]["steps"][0]["sums"].pop("losses"),
        lambda d: d["state"]["steps"][0]["sums"].update(losses=[1, 2, 3]),
        lambda d: d["state"]["steps"][0]["sums"]["losses"]["array"].update(shape=[4], values=[0, 0, 0, 0]),
        lambda d: d["state"]["steps"][0]["sums"]["losses"]["array"].update(dtype="<i8"),
        lambda d: d["state"]["history"][0].update(n_samples=-1),
        lambda d: d["state"]["history"][0].update(step="other"),
        lambda d: d["state"].update(sources=[1]),
        lambda d: d.update(alpha=2),
        lambda d: d.pop("alpha"),
        lambda d: d.pop("state"),
    ],
)
def test_wrong_content_is_refused(fitted, tmp_path, change):
    path = tmp_path / "state.json"
    monitor = Monitor(fitted)
    monitor.update(*batch(0))
    monitor.save(path)
    edited(path, change)
    with pytest.raises(StateFileError, match="does not hold a valid monitor"):
        Monitor.load(path, fitted)


def test_damage_is_told(fitted, tmp_path):
    path = tmp_path / "state.json"
    Monitor(fitted).save(path)
    whole = path.read_text()
    for text, match in (
        (whole[: len(whole) // 2], "cut short"),
        (whole.replace('"alpha": 0.05', '"alpha": 0.06'), "checksum"),
        (whole.replace('"version": 1', '"version": 2'), "format version 2"),
        ("[]", "not a monitor file"),
    ):
        path.write_text(text)
        with pytest.raises(StateFileError, match=match):
            Monitor.load(path, fitted)


def test_a_lost_race_is_found(fitted, tmp_path):
    path = tmp_path / "state.json"
    Monitor(fitted).save(path)
    first, second = Monitor.load(path, fitted), Monitor.load(path, fitted)
    first.update(*batch(1))
    first.save(path)
    first.update(*batch(2))
    first.save(path)  # its own file
    second.update(*batch(3))
    with pytest.raises(StateFileError, match="written by another process"):
        second.save(path)
    assert Monitor.load(path, fitted).result().n_steps == 2
    with pytest.raises(StateFileError, match="another monitor"):
        Monitor(fitted).save(path)


def _write(path, map_path, seed):
    fitted = mm.load(map_path)
    for k in range(4):
        with locked(path):
            monitor = Monitor.load(path, fitted)
            time.sleep(0.01)
            monitor.update(*batch(10 * seed + k, 5), step=f"{seed} {k}")
            monitor.save(path)


def test_processes_that_write_the_same_file_lose_nothing(fitted, tmp_path):
    path, map_path = tmp_path / "state.json", tmp_path / "map.json"
    fitted.save(map_path)
    Monitor(fitted).save(path)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(path, map_path, seed)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert Monitor.load(path, fitted).result().n_steps == 8
