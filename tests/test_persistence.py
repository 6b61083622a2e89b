import json
import os
from pathlib import Path

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._documents import checksum
from mixnmatch._files import atomic_write
from tests.conftest import make_problem

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
        with pytest.raises(mm.MapFileError):
            mm.load(saved)


def test_edited_files_are_refused(saved):
    text = saved.read_text()
    saved.write_text(text.replace('"rows": 200.0', '"rows": 201.0'))
    with pytest.raises(mm.MapFileError, match="edited or damaged"):
        mm.load(saved)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"\x80\x04K\x01.", b'{"format": "other"}', b"\xff\xfe", b"NaN"]
)
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(mm.MapFileError):
        mm.load(tmp_path / "x.json")


def test_deep_nesting_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"format":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(mm.MapFileError):
        mm.load(tmp_path / "x.json")


def test_newer_formats_are_refused(saved):
    rewrite(saved, lambda d: d.update(version=2))
    with pytest.raises(mm.MapFileError, match="update"):
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
    with pytest.raises(mm.MapFileError):
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
