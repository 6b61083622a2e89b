"""PyTorch modules: types, devices, state, gradients, export."""

import copy
import io
import re
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import mixnmatch as mm  # noqa: E402
from tests.conftest import make_problem  # noqa: E402
from tests.export.problems import NAMES, all_rows, calibration_set, fitted_map, fresh_rows  # noqa: E402
from tests.export.runtimes import extra_memory  # noqa: E402

SMOOTH = ("identity", "ts", "ets", "platt", "beta", "vector", "matrix", "sms", "ensemble-beta", "iop", "gpc")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 1.5 * 2**-8)])
def test_half_precision(name, kind, tolerance):
    # bfloat16: half a unit in the last place, and a unit more where a winner has to be raised above a tie.
    for logits in (False, True):
        fitted = fitted_map(name, 3, logits)
        rows = torch.from_numpy(fresh_rows(3, logits)).to(kind)
        found = fitted.to_torch()(rows)
        assert found.dtype == kind
        np.testing.assert_allclose(found.double().numpy(), fitted.predict_proba(rows), rtol=0, atol=tolerance)
        if fitted.accuracy_preserving:
            assert mm.accuracy_preserved(rows, found)


def test_double_precision_in_and_out():
    for name in ("ets", "irm", "sms"):
        fitted = fitted_map(name, 3, False)
        rows = all_rows(3, False).astype(float)
        rows /= rows.sum(axis=1, keepdims=True)
        found = fitted.to_torch()(torch.from_numpy(rows))
        assert found.dtype == torch.float64
        np.testing.assert_allclose(found.numpy(), fitted.predict_proba(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_whole_numbers_become_double_precision(name):
    fitted = fitted_map(name, 3, True)
    rows = torch.tensor([[1, 0, 3], [0, 0, 0], [-2, 4, 1]])
    found = fitted.to_torch()(rows)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), fitted.predict_proba(rows), rtol=0, atol=1e-6)


def test_casting_a_network_does_not_round_the_map():
    fitted = fitted_map("irm-ets", 3, True)
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), fitted.to_torch())
    rows = torch.from_numpy(all_rows(3, True))
    before = network[1](rows)
    network.half()
    assert network[0].weight.dtype == torch.float16
    assert {each.dtype for each in network[1].buffers()} == {torch.float64, torch.int64}
    assert torch.equal(network[1](rows), before)
    assert network(torch.zeros(2, 4, dtype=torch.float16)).dtype == torch.float16
    single = fitted.to_torch(precision="single")
    assert {each.dtype for each in single.buffers()} == {torch.float32, torch.int64}


def test_moving_to_a_device():
    module = fitted_map("irm-ets", 3, True).to_torch().to("meta")
    assert {str(each.device) for each in module.buffers()} == {"meta"}
    assert module(torch.zeros(5, 3, device="meta")).shape == (5, 3)
    if torch.cuda.is_available():
        module = fitted_map("irm-ets", 3, True).to_torch()
        rows = torch.from_numpy(all_rows(3, True))
        torch.testing.assert_close(module.cuda()(rows.cuda()).cpu(), module.cpu()(rows), rtol=0, atol=1e-6)


def test_state_carries_the_map():
    scores, y = calibration_set(3, False)
    rows = torch.from_numpy(scores)
    one, other = (mm.EnsembleTemperatureScaling().fit(scores**k / (scores**k).sum(1)[:, None], y) for k in (1, 2))
    module = one.to_torch()
    assert set(module.state_dict()) == {"beta", "floor", "weight_0", "weight_1", "weight_2", "columns", "_extra_state"}
    assert not list(module.parameters())
    assert not torch.equal(module(rows), other.to_torch()(rows))
    module.load_state_dict(other.to_torch().state_dict())
    assert torch.equal(module(rows), other.to_torch()(rows))
    assert torch.equal(copy.deepcopy(module)(rows), module(rows))
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(rows), module(rows))
    assert "EnsembleTemperatureScaling()" in repr(module)


def test_vectors_of_the_positive_class():
    rng = np.random.default_rng(0)
    for logits in (False, True):
        positive = (rng.normal(size=200) if logits else rng.random(200)).astype(np.float32)
        fitted = mm.calibrator("ets", logits=logits).fit(positive, (rng.random(200) < 0.5).astype(int))
        found = fitted.to_torch()(torch.from_numpy(positive)).numpy()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, fitted.predict_proba(positive), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 4), (5,), (3,), (2, 3, 5), ()])
def test_wrong_shapes(shape):
    with pytest.raises(ValueError, match=r"must have 3 classes in dimension -1.*got shape \("):
        fitted_map("ts", 3, False).to_torch()(torch.zeros(shape))
    with pytest.raises(ValueError, match="3 classes in dimension 2"):
        fitted_map("ts", 3, False).to_torch(dim=2)(torch.zeros(5, 3))


@pytest.mark.parametrize("name", ["ts", "irm", "irova-ets", "sms"])
def test_any_leading_dimensions_and_a_channel_dimension(name):
    fitted = fitted_map(name, 3, True)
    flat = torch.from_numpy(all_rows(3, True)[:120])
    expected = fitted.to_torch()(flat)
    for lead in [(120,), (12, 10), (2, 5, 12), (1, 120), (120, 1)]:
        assert torch.equal(fitted.to_torch()(flat.reshape(*lead, 3)), expected.reshape(*lead, 3))
    images = flat.reshape(2, 5, 12, 3).permute(0, 3, 1, 2)  # B, C, H, W
    for given in (images, images.contiguous()):
        for dim in (1, -3):
            found = fitted.to_torch(dim=dim)(given)
            assert found.shape == given.shape
            assert torch.equal(found.permute(0, 2, 3, 1).reshape(-1, 3), expected)
    assert fitted.to_torch(dim=0)(flat.T).equal(expected.T)
    assert fitted.to_torch()(torch.zeros(4, 0, 3)).shape == (4, 0, 3)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_change_nothing(name, monkeypatch):
    for logits in (False, True):
        module, rows = fitted_map(name, 3, logits).to_torch(), torch.from_numpy(all_rows(3, logits))
        whole = module(rows)
        monkeypatch.setattr("mixnmatch.export.torch_module.BLOCK_ENTRIES", 3 * 64)
        torch.testing.assert_close(module(rows), whole, rtol=0, atol=1e-7)
        monkeypatch.undo()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads peaks from /proc")
@pytest.mark.parametrize("precision", ["single", "double"])
def test_memory_is_bounded(precision):
    """At most three times the input beside it, the output included; a softmax in PyTorch takes once the input."""
    rows = torch.randn(20000, 250)
    inputs = rows.numel() * rows.element_size()
    scores, y = make_problem(500, 250, dtype=np.float32)
    for name in ("ts", "ets", "irm"):
        module = mm.calibrator(name, logits=True).fit(scores, y).to_torch(precision=precision)
        module(rows[:1000])
        assert extra_memory(lambda module=module: module(rows)) <= 3 * inputs


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("auto", "bcts-auto", "gpc")])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_states_of_maps_fitted_on_other_samples(name, precision):
    for logits in (False, True):
        one = fitted_map(name, 3, logits)
        scores, y = calibration_set(3, logits, n=150)
        module = mm.calibrator(name, logits=logits).fit(scores[::-1], y[::-1]).to_torch(precision=precision)
        network = torch.nn.Sequential(torch.nn.Identity(), module)
        source = torch.nn.Sequential(torch.nn.Identity(), one.to_torch(precision=precision))
        buffer = io.BytesIO()
        torch.save(source.state_dict(), buffer)
        buffer.seek(0)
        network.load_state_dict(torch.load(buffer, weights_only=True))
        rows = torch.from_numpy(all_rows(3, logits))
        assert torch.equal(network(rows), source(rows))
        assert {each.dtype for each in module.buffers()} <= {module._real, torch.int64}
        assert all(value.dtype != object for value in network.state_dict().values())


def test_states_that_do_not_fit_say_why():
    irm = fitted_map("irm", 3, True).to_torch()
    before = {name: value.clone() for name, value in irm.state_dict().items()}
    others = {
        "map 'Pooled.Isotonic', not 'TemperatureScaling'": fitted_map("ts", 3, True),
        "n_classes 3, not 10": fitted_map("irm", 10, True),
        "logits True, not False": fitted_map("irm", 3, False),
    }
    for why, other in others.items():
        with pytest.raises(RuntimeError, match=re.escape(why)):
            other.to_torch().load_state_dict(irm.state_dict())
    with pytest.raises(RuntimeError, match=r"precision 'double', not 'single'"):
        fitted_map("irm", 3, True).to_torch(precision="single").load_state_dict(irm.state_dict())
    cut = irm.state_dict()
    del cut["searched"]
    module = fitted_map("irm", 3, True).to_torch()
    with pytest.raises(RuntimeError, match="searched"):
        module.load_state_dict(cut)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_states_of_numbers_alone_still_load():
    fitted = fitted_map("irm-ets", 3, True)
    state = fitted.to_torch().state_dict()
    del state["_extra_state"]
    module = fitted.to_torch()
    for each in module.buffers():
        each.zero_()
    module.load_state_dict(state)
    rows = torch.from_numpy(all_rows(3, True))
    assert torch.equal(module(rows), fitted.to_torch()(rows))


@pytest.mark.parametrize("name, backend", [("ts", "eager"), ("irm", "aot_eager"), ("auto", "eager")])
def test_one_compiled_graph_for_all_batch_sizes(name, backend):
    """With room for one graph a function, and none for eager code, another graph would be an error."""
    dynamo = pytest.importorskip("torch._dynamo")
    limit = "recompile_limit" if hasattr(dynamo.config, "recompile_limit") else "cache_size_limit"
    module, rows = fitted_map(name, 3, True).to_torch(), torch.from_numpy(all_rows(3, True))
    with dynamo.config.patch({limit: 1}):
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=backend)
        for n in (50, 7, 333, 2):
            torch.testing.assert_close(compiled(rows[:n]), module(rows[:n]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("logits", [False, True])
def test_gradients_are_right(name, logits):
    fitted = fitted_map(name, 3, logits)
    rows = torch.from_numpy(fresh_rows(3, logits, n=4).astype(float))
    module = fitted.to_torch()
    if logits:
        assert torch.autograd.gradcheck(module, (rows.requires_grad_(),), atol=1e-5)
    else:  # along the simplex: off it rows are renormalised or refused
        free = rows.log().requires_grad_()
        assert torch.autograd.gradcheck(lambda u: module(u.softmax(dim=1)), (free,), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("logits", [False, True])
def test_gradients_are_finite(name, logits):
    fitted = fitted_map(name, 3, logits)
    rows = torch.from_numpy(all_rows(3, logits)).requires_grad_()
    out = fitted.to_torch()(rows)
    if out.requires_grad:  # the uniform prediction and pure steps depend on nothing
        out.clamp(min=1e-6).log().sum().backward()
        assert torch.isfinite(rows.grad).all()


def test_a_temperature_is_learned_through_the_map():
    """Gradients reach a network below the map."""
    logits, y = calibration_set(3, True)
    module = mm.TemperatureScaling(logits=True).fit(logits, y).to_torch()
    scale = torch.tensor(0.3, requires_grad=True)
    p = module(scale * torch.from_numpy(logits[20:]))
    torch.nn.functional.nll_loss(p.log(), torch.from_numpy(y[20:])).backward()
    assert scale.grad is not None
    assert scale.grad < 0  # sharper is better


@pytest.mark.parametrize("name", ["ts", "irova-ets", "sms", "beta", "gpc"])
def test_torch_export(name):
    fitted = fitted_map(name, 3, True)
    rows = torch.from_numpy(all_rows(3, True))
    module = fitted.to_torch()
    program = torch.export.export(module, (rows[:5],), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(program.module()(rows), module(rows), rtol=0, atol=0)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    again = torch.export.load(buffer).module()
    torch.testing.assert_close(again(rows[:9]), module(rows[:9]), rtol=0, atol=0)
