import base64
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._documents import MOST_BYTES, checksum
from mixnmatch._files import atomic_write
from mixnmatch.persistence import read_header
from tests.conftest import make_problem, softmax

HERE = Path(__file__).parent


@pytest.fixture
def saved(tmp_path):
    logits, y = make_problem(200, 4)
    chain = mm.EnsembleTemperatureScaling(logits=True) >> mm.Pooled(mm.Isotonic(strict=True))
    path = tmp_path / "map.json"
    chain.fit(logits, y).save(path)
    return path


def array(dtype, shape, **content):
    return {"array": {"dtype": dtype, "shape": shape, **content}}


def pieces(document):
    return document["fitted"]["second_"]["fitted"]["map_"]["fitted"]


def rewrite(path, change):
    """Change the document and give it a checksum that fits, as a forger would."""
    document = json.loads(path.read_text())
    document.pop("sha256")
    change(document)
    document["sha256"] = checksum(document)
    path.write_text(json.dumps(document))


def test_header_is_readable(saved):
    document = json.loads(saved.read_text())
    assert document["format"] == "mixnmatch-map"
    assert document["version"] == 1
    assert document["library"] == f"mixnmatch {mm.__version__}"
    assert document["summary"]["method"].startswith("Composition(first=EnsembleTemperatureScaling")
    assert document["summary"]["rows"] == 200
    assert document["summary"]["classes"] == 4
    assert document["summary"]["accuracy_preserving"] is True


def test_metrics_at_fit_are_in_the_header(tmp_path):
    logits, y = make_problem(200, 4)
    fitted = mm.TemperatureScaling(logits=True).fit(logits, y)
    fitted.save(tmp_path / "ts.json")
    summary = json.loads((tmp_path / "ts.json").read_text())["summary"]
    assert summary["metrics_at_fit"] == {"mean_loss": fitted.loss_}
    assert summary["loss"] == "nll"


def test_truncated_files_are_refused(saved):
    whole = saved.read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 2):
        saved.write_bytes(whole[:size])
        with pytest.raises(mm.persistence.MapFileError):
            mm.load(saved)


def test_edited_files_are_refused(saved):
    text = saved.read_text()
    saved.write_text(text.replace('"rows": 200.0', '"rows": 201.0'))
    with pytest.raises(mm.persistence.MapFileError, match="edited or corrupted"):
        mm.load(saved)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"\x80\x04K\x01.", b'{"format": "other"}', b"\xff\xfe", b"NaN"]
)
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(mm.persistence.MapFileError):
        mm.load(tmp_path / "x.json")


def test_deep_nesting_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"format":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(mm.persistence.MapFileError):
        mm.load(tmp_path / "x.json")


@pytest.mark.parametrize("depth", [150, 300, 480, 993, 2000])
def test_any_depth_of_nesting_is_refused_in_words(saved, depth):
    document = json.loads(saved.read_text())
    document.pop("sha256")
    text = json.dumps(document)[:-1] + ', "extra": ' + "[" * depth + "]" * depth + "}"
    saved.write_text(text)
    with pytest.raises(mm.persistence.MapFileError):
        mm.load(saved)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices of POSIX")
def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(mm.persistence.MapFileError, match="not a regular file"):
            mm.load(path)
    with pytest.raises((mm.persistence.MapFileError, IsADirectoryError)):
        mm.load(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="files with holes")
def test_huge_files_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(mm.persistence.MapFileError, match="is too large"):
        mm.load(path)


def test_metadata_come_back(saved, tmp_path):
    fitted = mm.load(saved)
    assert fitted.metadata_ == {}
    given = {"model": "sha256:1f", "rows": 3, "nested": {"list": [1, 2.5, None, True, "é"]}, "numpy": np.float64(0.5)}
    path = tmp_path / "with.json"
    fitted.save(path, metadata=given)
    again = mm.load(path)
    assert again.metadata_ == {**given, "numpy": 0.5}
    header = read_header(path)
    assert header["metadata"] == again.metadata_
    assert header == again.header_
    assert header["summary"]["rows"] == 200
    assert "map" not in header
    again.save(tmp_path / "again.json")
    assert mm.load(tmp_path / "again.json").metadata_ == again.metadata_
    again.save(tmp_path / "none.json", metadata={})
    assert mm.load(tmp_path / "none.json").metadata_ == {}


@pytest.mark.parametrize("metadata", [["model v3"], "model v3", 5, [("a", 1)], False])
def test_metadata_that_are_no_mapping_leave_the_file_alone(saved, metadata):
    before = Path(saved).read_bytes()
    with pytest.raises(TypeError, match="metadata must be a mapping"):
        mm.load(saved).save(saved, metadata=metadata)
    assert Path(saved).read_bytes() == before


def test_refitting_forgets_metadata(saved, tmp_path):
    fitted = mm.load(saved)
    fitted.save(saved, metadata={"model": "a"})
    logits, y = make_problem(200, 4, seed=5)
    again = mm.load(saved).fit(logits, y)
    again.save(tmp_path / "new.json")
    assert mm.load(tmp_path / "new.json").metadata_ == {}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [({1: "a"}, TypeError), ({"a": {2: 3}}, TypeError), ({"a": object()}, TypeError), ({"a": np.nan}, ValueError)],
)
def test_metadata_that_cannot_be_saved(saved, metadata, error):
    before = saved.read_bytes()
    with pytest.raises(error, match="metadata"):
        mm.load(saved).save(saved, metadata=metadata)
    assert saved.read_bytes() == before


def test_metadata_are_part_of_thechecksum(saved):
    mm.load(saved).save(saved, metadata={"model": "right"})
    saved.write_text(saved.read_text().replace("right", "wrong"))
    with pytest.raises(mm.persistence.MapFileError, match="edited or corrupted"):
        read_header(saved)


@pytest.mark.parametrize(
    "names",
    [
        np.array([2**64 - 1, 2**63, 5], dtype=np.uint64),
        np.array([1, 2, 3], dtype=np.uint64),
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array(["a", "b\n", "é"]),
        np.array([b"a", b"b", b"c"]),
        ["x", "y", "z"],
    ],
    ids=str,
)
def test_names_of_classes_keep_their_value(tmp_path, names):
    logits, y = make_problem(60, 3)
    fitted = mm.TemperatureScaling(logits=True, classes=names).fit(logits, np.asarray(names)[y])
    fitted.save(tmp_path / "map.json")
    loaded = mm.load(tmp_path / "map.json")
    assert loaded.classes_.tolist() == np.asarray(names).tolist()
    assert loaded.predict(logits).tolist() == fitted.predict(logits).tolist()


OUT_OF_RANGE = {
    ("ts", "beta_"): -1.0,
    ("ts", "probability_floor_"): -1.0,
    ("ts", "total_weight_"): 0.0,
    ("ets", "member_weights_"): [0.7, 0.7, -0.4],
    ("ensemble-beta", "theta_"): [[-1.0, 1.0, 0.0]],
    ("vector", "weight_"): [1e300, 1.0, 1.0],
    ("matrix", "intercept_"): [0.0, 0.0],
    ("iop", "slopes_"): [-1.0],
    ("iop-context", "slopes_"): [[[-1.0]]],
    ("iop-context", "context_knots_"): [[2.0, 1.0]],
    ("gpc", "deviation_"): [0.0],
    ("auto", "member_weights_"): [2.0],
}


@pytest.mark.parametrize(("name", "key"), OUT_OF_RANGE)
def test_attributes_out_of_range_are_refused(tmp_path, name, key):
    logits, y = make_problem(40, 3)
    path = tmp_path / "map.json"
    mm.calibrator(name).fit(softmax(logits), y).save(path)
    mm.load(path)
    rewrite(path, lambda d: d["map"]["fitted"].update({key: _as_json(OUT_OF_RANGE[name, key])}))
    with pytest.raises(mm.persistence.MapFileError, match=f"{key}|number"):
        mm.load(path)


@pytest.mark.parametrize("key", ["values_", "slopes_", "left_", "knots_"])
@pytest.mark.parametrize("number", [-0.5, 1.5, 1e6])
def test_functions_that_leave_the_unit_interval_are_refused(saved, key, number):
    def change(document):
        entry = pieces(document["map"])[key]["array"]
        flat = _numbers_of(entry)
        flat[-1] = number
        document_entry = array("<f8", [len(flat)], values=flat.tolist())
        pieces(document["map"])[key] = document_entry

    rewrite(saved, change)
    with pytest.raises(mm.persistence.MapFileError):
        mm.load(saved)


def _as_json(value):
    if isinstance(value, float):
        return value
    return array("<f8", list(np.shape(value)), values=np.ravel(value).tolist())


def _numbers_of(entry):
    if "values" in entry:
        return np.array(entry["values"], dtype=float)
    return np.frombuffer(base64.b64decode(entry["base64"]), entry["dtype"]).copy()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 9, 10, 11, 14, 19, 20, 30, 50])
def test_every_map_that_fits_saves_and_loads(tmp_path, n, n_classes):
    logits, y = make_problem(n, n_classes, seed=n)
    p = softmax(3 * logits)
    path = tmp_path / "map.json"
    fitted_names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of small samples
        for name in (line.name for line in mm.calibrators()):
            try:
                fitted = mm.calibrator(name).fit(p, y)
            except ValueError:
                continue
            fitted_names.append(name)
            fitted.save(path)
            loaded = mm.load(path)
            np.testing.assert_array_equal(loaded.predict_proba(p), fitted.predict_proba(p), err_msg=name)
            loaded.save(path)
            np.testing.assert_array_equal(mm.load(path).predict_proba(p), fitted.predict_proba(p), err_msg=name)
    assert {"auto", "ts", "ets", "irm", "beta"} <= set(fitted_names)


def test_unknown_losses_of_auto_stay_unknown(tmp_path):
    logits, y = make_problem(6, 3)
    fitted = mm.calibrator("auto", logits=True).fit(logits, y)
    fitted.save(tmp_path / "auto.json")
    loaded = mm.load(tmp_path / "auto.json")
    assert np.isnan(loaded.loss_)
    assert np.isnan(loaded.candidate_losses_).all()


def test_newer_formats_are_refused(saved):
    rewrite(saved, lambda d: d.update(version=2))
    with pytest.raises(mm.persistence.MapFileError, match="update"):
        mm.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(type="os.system"),
        lambda m: m.update(type="BaseEstimator"),
        lambda m: m["fitted"].pop("first_"),
        lambda m: m["fitted"].update(extra_=1),
        lambda m: m["fitted"].update(n_classes_=10**12),
        lambda m: m["fitted"].update(classes_={"text": []}),
        lambda m: m["fitted"].update(first_=3),
        lambda m: m["fitted"]["first_"]["fitted"].update(beta_="1.0"),
        lambda m: m["fitted"]["first_"]["fitted"].update(beta_=None),
        lambda m: m["fitted"]["first_"]["fitted"].update(beta_={"float": "nan"}),
        lambda m: m["fitted"]["first_"]["fitted"].update(member_weights_=array("<f8", [10**9], values=[1])),
        lambda m: m["fitted"]["first_"]["fitted"].update(member_weights_=array("|O", [1], base64="")),
        lambda m: pieces(m).update(offsets_=array("<i8", [2], values=[0, 9**9])),
        lambda m: pieces(m).update(knots_=array("<f8", [1], values=[0.5])),
        lambda m: m["fitted"]["second_"]["fitted"].update(mixing_=-3.0),
        lambda m: m["params"].update(__class__=1),
        lambda m: m.update(params=[1]),
    ],
)  # fmt: skip
def test_hostile_files_are_refused(saved, change):
    rewrite(saved, lambda d: change(d["map"]))
    with pytest.raises(mm.persistence.MapFileError):
        mm.load(saved)


def test_first_format_loads_for_ever():
    """A file of format version 1 that is never written again."""
    fitted = mm.load(HERE / "data" / "map-format-1.json")
    expected = json.loads((HERE / "data" / "map-format-1-predictions.json").read_text())
    np.testing.assert_allclose(fitted.predict_proba(np.array(expected["scores"])), expected["predictions"], rtol=1e-12)


def test_unfitted_maps_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        mm.TemperatureScaling().save(tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


def test_missing_files_are_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        mm.load(tmp_path / "none.json")


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def fail(file):
        file.write(b"half")
        msg = "disk full"
        raise OSError(msg)

    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, fail)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
