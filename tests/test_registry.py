import inspect
import re
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import mixnmatch as mm
from mixnmatch.maps import registry

# fmt: off
NAMES = [
    "identity", "uniform", "ts", "ets", "platt", "beta", "ensemble-beta", "ensemble-platt", "vector", "matrix",
    "dirichlet", "svs", "sms", "isotonic", "histogram", "bbq", "irm", "irova", "irova-ts", "irova-ets", "irm-ts",
    "irm-ets", "iop", "gpc", "bcts", "bcts-auto",
]
# fmt: on


def test_all_names_are_there():
    assert {line.name for line in mm.calibrators()} >= set(NAMES)
    for line in mm.calibrators():
        assert line.name in str(line)
        assert line.summary


def test_options_reach_the_map():
    assert mm.calibrator("ts", loss="brier", logits=True).get_params()["loss"] == "brier"
    assert mm.calibrator("irm", smoothing=0).smoothing == 0
    assert mm.calibrator("irm", shape="centred").map.shape == "centred"
    chain = mm.calibrator("irm-ets", loss="brier", logits=True, cv=3, smoothing=2.0)
    assert chain.first.loss == "brier"
    assert chain.first.logits
    assert chain.cv == 3
    assert chain.second.smoothing == 2.0
    stack = mm.calibrator("bcts-auto", logits=True, ridge=5.0, cv=3)
    assert (stack.first.logits, stack.first.cv, stack.second.ridge) == (True, 3, 5.0)
    assert mm.calibrator("histogram", bins=5).map.bins == 5
    assert mm.calibrator("platt", smoothing=False).map.smoothing is False
    assert mm.calibrator("svs", weights="importance").weights == "importance"
    with pytest.raises(TypeError):
        mm.calibrator("ts", bins=3)


def test_unknown_names_get_a_hint():
    with pytest.raises(ValueError, match="Did you mean 'ets'"):
        mm.calibrator("etss")
    with pytest.raises(ValueError, match=r"calibrators\(\) lists the methods"):
        mm.calibrator("")


def test_public_names_exist_and_import_is_lazy():
    for name in mm.__all__:
        assert getattr(mm, name) is not None
    with pytest.raises(AttributeError, match="No mixnmatch attribute"):
        mm.nothing  # noqa: B018
    heavy = ("numba", "matplotlib", "torch", "scipy", "sklearn", "jinja2", "markupsafe")
    code = f"import sys, mixnmatch; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_few_names_are_at_the_top_and_moved_ones_warn_and_work():
    assert len(set(mm.__all__) - {"__version__"}) <= 32
    for home, names in mm._MOVED.items():
        for name in names:
            with pytest.warns(FutureWarning, match=f"mixnmatch.{name} is now {home}.{name}"):
                assert getattr(mm, name) is getattr(import_module(home), name)
            assert name not in dir(mm)


def test_a_built_in_map_is_a_module_and_one_line(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text("from mixnmatch.maps.trivial import Identity\n\n\nclass Toy(Identity): ...\n")
    monkeypatch.setattr(mm.maps, "__path__", [*mm.maps.__path__, str(tmp_path)])
    first, *rest = re.split(r"(?<=METHODS: dict\[str, Method\] = {\n)", inspect.getsource(registry))
    changed = ModuleType("changed")
    monkeypatch.setitem(sys.modules, "changed", changed)
    exec("".join([first, '    "toy": Method(_Map("toy.Toy"), "a toy"),\n', *rest]), changed.__dict__)
    fitted = changed.calibrator("toy").fit([[0.2, 0.8], [0.6, 0.4]], [1, 0])
    assert type(fitted) is changed.map_class("Toy")
    assert [line.summary for line in changed.calibrators() if line.name == "toy"] == ["a toy"]


def test_the_default_goes_by_the_number_of_classes():
    assert {registry.default_method(n) for n in (2, 3, 1000)} <= set(registry.METHODS)
    assert not registry.METHODS[registry.default_method(2)].accuracy_preserving  # it can move the threshold
    assert registry.METHODS[registry.default_method(3)].accuracy_preserving
