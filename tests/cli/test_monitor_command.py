"""``mixnmatch monitor``: exit codes, files counted once, JSON and the page."""

import json

import numpy as np
import pytest

from tests.cli.conftest import parsed


@pytest.fixture
def monitored(folder, run):
    """``cal.json``, calm batches ``a.npz`` to ``c.npz`` and ``bad.npz`` with other labels."""
    rng = np.random.default_rng(0)

    def write(name, n, shift=0.0):
        logits = rng.normal(size=(n, 3))
        u = logits + np.array([0, 0, shift])
        p = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        np.savez(name, logits=3 * logits, labels=labels)

    for name, n, shift in (("val", 2000, 0), ("a", 300, 0), ("b", 300, 0), ("c", 300, 0), ("bad", 2000, 1.0)):
        write(f"{name}.npz", n, shift)
    assert run("fit", "val.npz", "--method", "ts", "-o", "cal.json").exit_code == 0
    return folder


def test_no_alarm_then_an_alarm(monitored, run):
    calm = run("monitor", "cal.json", "a.npz", "b.npz", "--state", "state.json")
    assert calm.exit_code == 0, calm.stderr
    assert "No alarm" in calm.stdout
    assert "a.npz" in calm.stdout
    alarm = run("monitor", "cal.json", "c.npz", "bad.npz", "--state", "state.json")
    assert alarm.exit_code == 3
    assert "ALARM" in alarm.stdout
    assert "First alarm in step bad.npz" in alarm.stdout
    assert "Adapt" in alarm.stdout


def test_json_and_alpha(monitored, run):
    found = parsed(run("monitor", "cal.json", "a.npz", "--state", "state.json", "--alpha", "0.01", "--json"))
    assert found["alarm"] is False
    assert found["alpha"] == 0.01
    assert found["advice"] == "nothing"
    assert found["counted"] == ["a.npz"]
    assert len(found["offsets"]) == 3
    alarm = run("monitor", "cal.json", "bad.npz", "--state", "state.json", "--json")
    assert alarm.exit_code == 3
    assert json.loads(alarm.stdout)["alarm_step"] == "bad.npz"
    wrong = run("monitor", "cal.json", "b.npz", "--state", "state.json", "--alpha", "0.2")
    assert wrong.exit_code == 1
    assert "0.01" in wrong.stderr


def test_files_are_counted_once(monitored, run):
    first = parsed(run("monitor", "cal.json", "a.npz", "b.npz", "--state", "state.json", "--json"))
    again = run("monitor", "cal.json", "a.npz", "b.npz", "--state", "state.json")
    assert again.exit_code == 0
    assert "counted before" in again.stderr
    (monitored / "a.npz").rename("renamed.npz")
    same = parsed(run("monitor", "cal.json", "renamed.npz", "--state", "state.json", "--json"))
    assert same["n_samples"] == first["n_samples"] == 600
    assert same["skipped"] == ["renamed.npz"]


def test_files_with_text_labels_are_counted_once(monitored, run):
    rng = np.random.default_rng(1)

    def write(name, positives):
        p = rng.random(60)
        labels = np.where(rng.random(60) < positives * p, "fraud", "fine")
        lines = [f"{1 - a},{a},{b}" for a, b in zip(p.tolist(), labels.tolist(), strict=True)]
        (monitored / name).write_text("\n".join(["fine,fraud,label", *lines]) + "\n")

    write("cal.csv", 1.0)
    write("day.csv", 1.0)
    assert run("fit", "cal.csv", "--method", "platt", "-o", "fraud.json").exit_code == 0
    for _ in range(3):
        found = parsed(run("monitor", "fraud.json", "day.csv", "--state", "fraud_state.json", "--json"))
        assert found["n_samples"] == 60
    start, _, last = (monitored / "day.csv").read_text().rpartition(",")
    (monitored / "other.csv").write_text(f"{start},{'fraud' if last.strip() == 'fine' else 'fine'}\n")
    found = parsed(run("monitor", "fraud.json", "other.csv", "--state", "fraud_state.json", "--json"))
    assert found["n_samples"] == 120  # one label differs: another file


def test_samples_are_counted_once_however_a_file_holds_them(monitored, run):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    p = rng.random(80).astype(np.float32)
    names = np.where(rng.random(80) < p, "fraud", "fine")
    frame = pd.DataFrame({"fine": 1 - p, "fraud": p, "label": names})
    double = frame.astype({"fine": float, "fraud": float})
    double.to_csv("day.csv", index=False)
    double[["label", "fraud", "fine"]].to_csv("other_order.csv", index=False)
    double[["fraud", "label"]].to_csv("one_column.csv", index=False)
    frame.to_parquet("day.parquet")
    assert run("fit", "day.csv", "--method", "platt", "-o", "fraud.json").exit_code == 0
    for name in ("day.csv", "other_order.csv", "day.parquet", "one_column.csv"):
        found = parsed(run("monitor", "fraud.json", name, "--state", "kinds.json", "--json"))
        assert found["n_samples"] == 80
        assert found["skipped"] == ([] if name == "day.csv" else [name])


def test_sure_samples_are_told_apart(monitored, run):
    """Probabilities that are all 1 in single precision, but not those of the other class."""
    rng = np.random.default_rng(3)
    p = rng.random(200)
    np.savez("cal.npz", probs=np.stack([1 - p, p], axis=1), labels=(rng.random(200) < p).astype(int))
    assert run("fit", "cal.npz", "--method", "ts", "-o", "binary.json").exit_code == 0
    rest = 1e-9 * rng.random(60)
    for name, low in (("a.npz", rest), ("b.npz", rest + 2e-9)):
        np.savez(name, probs=1 - low, labels=np.ones(60, dtype=int))
        found = parsed(run("monitor", "binary.json", name, "--state", "sure.json", "--json"))
        assert found["skipped"] == []
    assert found["n_samples"] == 120


def test_small_files_that_are_alike_are_all_counted(monitored, run):
    """Leaving out those whose score and label came before would leave out labels by their frequency."""
    rng = np.random.default_rng(4)
    scores = rng.choice([0.02, 0.1, 0.2], 80)
    for k, score in enumerate(scores):
        label = "fraud" if rng.random() < score else "fine"
        (monitored / f"h{k:02}.csv").write_text(f"fine,fraud,label\n{1 - score:.2f},{score},{label}\n")
    lines = [(monitored / f"h{k:02}.csv").read_text().splitlines()[1] for k in range(80)]
    (monitored / "cal.csv").write_text("\n".join(["fine,fraud,label", *lines]) + "\n")
    assert run("fit", "cal.csv", "--method", "identity", "-o", "id.json").exit_code == 0
    names = [f"h{k:02}.csv" for k in range(80)]
    found = parsed(run("monitor", "id.json", *names, "--state", "hours.json", "--json"))
    assert found["n_samples"] == 80
    assert found["alarm"] is False
    again = parsed(run("monitor", "id.json", *names, "--state", "hours.json", "--json"))
    assert again["n_samples"] == 80
    assert again["skipped"] == names


def test_late_labels_join_their_step(monitored, run):
    run("monitor", "cal.json", "a.npz", "b.npz", "--state", "state.json")
    found = parsed(run("monitor", "cal.json", "c.npz", "--step", "a.npz", "--state", "state.json", "--json"))
    assert found["n_steps"] == 2
    assert found["n_samples"] == 900
    assert found["step"] == "a.npz"


def test_the_page(monitored, run):
    result = run("monitor", "cal.json", "a.npz", "bad.npz", "--state", "state.json", "--html", "page.html")
    assert result.exit_code == 3
    page = (monitored / "page.html").read_text()
    assert "Content-Security-Policy" in page
    assert 'id="evidence-figure"' in page
    assert 'id="offsets-figure"' in page
    assert "bad.npz" in page
    again = run("monitor", "cal.json", "b.npz", "--state", "state.json", "--html", "page.html")
    assert again.exit_code == 1
    assert "--force" in again.stderr


def test_errors_are_one_line_and_keep_what_was_counted(monitored, run):
    (monitored / "broken.npz").write_text("nothing")
    result = run("monitor", "cal.json", "a.npz", "broken.npz", "--state", "state.json")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: broken.npz")
    found = parsed(run("monitor", "cal.json", "b.npz", "--state", "state.json", "--json"))
    assert found["n_steps"] == 2
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(9, 3))
    np.savez("weighted.npz", logits=logits, labels=np.arange(9) % 3, weights=np.ones(9))
    weighted = run("monitor", "cal.json", "weighted.npz", "--state", "state.json")
    assert weighted.exit_code == 1
    assert "weights" in weighted.stderr
    np.savez("bare.npz", logits=logits)
    assert run("monitor", "cal.json", "bare.npz", "--state", "state.json").exit_code == 1
    run("fit", "a.npz", "--method", "ets", "-o", "other.json")
    other = run("monitor", "other.json", "c.npz", "--state", "state.json")
    assert other.exit_code == 1
    assert "another map" in other.stderr
    assert run("monitor", "cal.json", "--state", "state.json").exit_code == 2


def test_evaluate_tells_of_samples_unlike_the_calibration_set(monitored, run):
    calm = run("evaluate", "a.npz", "--map", "cal.json", "--no-interval")
    assert "do not look like" not in calm.stdout
    bad = run("evaluate", "bad.npz", "--map", "cal.json", "--no-interval")
    assert "do not look like the calibration set" in bad.stdout
    found = parsed(run("evaluate", "bad.npz", "--map", "cal.json", "--no-interval", "--json"))
    assert found["score_drift"]["different"]
    assert len(found["score_drift"]["by_class"]) == 3
