"""PyTorch modules: types, devices, state, gradients, export."""

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import mixnmatch as mm  # noqa: E402
from tests.export.problems import NAMES, all_rows, calibration_set, fitted_map, fresh_rows  # noqa: E402

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
    assert set(module.state_dict()) == {"beta", "floor", "weight_0", "weight_1", "weight_2", "columns"}
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


@pytest.mark.parametrize("shape", [(5, 4), (5,), (2, 5, 3)])
def test_wrong_shapes(shape):
    with pytest.raises(ValueError, match=r"must have shape \(n, 3\)"):
        fitted_map("ts", 3, False).to_torch()(torch.zeros(shape))


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
