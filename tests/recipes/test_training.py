import numpy as np
import pytest

torch = pytest.importorskip("torch")

from paper_networks import training  # noqa: E402
from paper_networks.networks import network  # noqa: E402
from paper_networks.training import (  # noqa: E402
    Normalisation,
    Recipe,
    learning_rate,
    predict_logits,
    seeded,
    train,
    write_npz,
)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def bright_quadrants(n=256, seed=0):
    """Noise images; the class says which quarter is brighter."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    images = rng.integers(0, 128, (n, 3, 32, 32))
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[:, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 100
    return images.astype(np.uint8), labels.astype(np.int64)


def build(name="lenet-5"):
    with seeded(1):
        return network(name, classes=4)


def weights(model):
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def test_recipe_defaults_are_appendix_f():
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch_size, recipe.learning_rate, recipe.milestones) == (
        500,
        128,
        0.1,
        (60, 120, 160),
    )
    assert (recipe.drop, recipe.momentum, recipe.dampening, recipe.weight_decay) == (0.2, 0.9, 0.0, 5e-4)
    assert recipe.nesterov
    assert recipe.flip
    assert recipe.crop_padding == 4
    assert learning_rate(recipe, 160) == pytest.approx(0.1 * 0.2**3)


@pytest.mark.parametrize("name", ["lenet-5", "resnet-8"])
def test_one_epoch_lowers_the_loss(name):
    images, labels = bright_quadrants()
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.02, milestones=(), flip=False, crop_padding=0)
    trained = train(build(name), images, labels, recipe)
    first, second = trained.history
    assert second.loss < first.loss
    assert first.loss < 1.2 * np.log(4)
    test_images, test_labels = bright_quadrants(200, seed=5)
    logits = predict_logits(trained, test_images, batch_size=64)
    assert logits.shape == (200, 4)
    assert logits.dtype == np.float32
    assert np.mean(logits.argmax(1) == test_labels) > 0.6


@pytest.mark.parametrize("name", ["lenet-5", "wrn-10-1"])
def test_resume_equals_no_interruption(name, tmp_path):
    images, labels = bright_quadrants(96)
    recipe = Recipe(epochs=4, batch_size=40, learning_rate=0.05, milestones=(2,))
    whole = train(build(name), images, labels, recipe)

    class KilledError(Exception):
        pass

    def kill(record):
        if record.epoch == 1:
            raise KilledError

    path = tmp_path / "run.npz"
    with pytest.raises(KilledError):
        train(build(name), images, labels, recipe, checkpoint=path, on_epoch=kill)
    torch.rand(7)  # the global generator has no influence
    seen = []
    with seeded(99):
        other = network(name, classes=4)  # nor have the weights that the checkpoint replaces
    resumed = train(other, images, labels, recipe, checkpoint=path, on_epoch=seen.append)
    assert [record.epoch for record in seen] == [2, 3]
    assert resumed.history == whole.history
    expected = weights(whole.network)
    for name_, value in weights(resumed.network).items():
        np.testing.assert_array_equal(value, expected[name_])
    np.testing.assert_array_equal(predict_logits(resumed, images), predict_logits(whole, images))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.npz"]


def test_finished_run_can_be_read_back_and_extended(tmp_path):
    images, labels = bright_quadrants(64)
    path = tmp_path / "run.npz"
    done = train(build(), images, labels, Recipe(epochs=1, learning_rate=0.01), checkpoint=path, checkpoint_every=5)
    again = train(build(), images, labels, Recipe(epochs=1, learning_rate=0.01), checkpoint=path)
    np.testing.assert_array_equal(predict_logits(done, images), predict_logits(again, images))
    longer = train(build(), images, labels, Recipe(epochs=2, learning_rate=0.01), checkpoint=path)
    assert len(longer.history) == 2


def test_checkpoint_of_another_run_is_refused(tmp_path):
    images, labels = bright_quadrants(64)
    path = tmp_path / "run.npz"
    recipe = Recipe(epochs=1, learning_rate=0.01)
    train(build(), images, labels, recipe, checkpoint=path)
    with pytest.raises(ValueError, match="another recipe"):
        train(build(), images, labels, Recipe(epochs=1, learning_rate=0.02), checkpoint=path)
    with pytest.raises(ValueError, match="another data"):
        train(build(), images[::-1], labels, recipe, checkpoint=path)
    with pytest.raises(ValueError, match="another network"):
        train(network("resnet-8", classes=4), images, labels, recipe, checkpoint=path)
    write_npz(path, {"something": np.zeros(2)})
    with pytest.raises(ValueError, match="not a checkpoint"):
        train(build(), images, labels, recipe, checkpoint=path)


def test_checkpoints_hold_no_pickle(tmp_path):
    images, labels = bright_quadrants(32)
    train(build(), images, labels, Recipe(epochs=1, learning_rate=0.01), checkpoint=tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as archive:
        assert any(name.startswith("momentum/") for name in archive.files)
        assert all(archive[name].dtype.kind in "uif" for name in archive.files)


def test_global_generator_is_left_alone():
    images, labels = bright_quadrants(32)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    train(build(), images, labels, Recipe(epochs=1, learning_rate=0.01))
    assert torch.equal(torch.rand(3), expected)


def test_divergence_is_reported():
    images, labels = bright_quadrants(64)
    with pytest.raises(FloatingPointError, match="learning rate"):
        train(build(), images, labels, Recipe(epochs=5, batch_size=8, learning_rate=1e6))


def test_wrong_arrays_are_refused():
    images, labels = bright_quadrants(8)
    with pytest.raises(ValueError, match="uint8"):
        train(build(), images.astype(np.float32), labels, Recipe())
    with pytest.raises(ValueError, match="one entry"):
        train(build(), images, labels[:3], Recipe())


def test_normalisation():
    images, _ = bright_quadrants(50)
    norm = Normalisation.of(images)
    np.testing.assert_allclose(norm.mean, images.mean((0, 2, 3)) / 255, rtol=1e-12)
    np.testing.assert_allclose(norm.std, images.std((0, 2, 3)) / 255, rtol=1e-12)
    values = norm(images)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(values.std((0, 2, 3)), 1, atol=1e-4)
    constant = np.full((2, 1, 4, 4), 7, np.uint8)
    assert np.all(np.isfinite(Normalisation.of(constant)(constant)))


def test_augmentation_flips_and_crops():
    images = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8).repeat(400, 0)
    rng = np.random.default_rng(0)
    flipped = training._augment(images, Recipe(crop_padding=0), rng)
    same = (flipped == images).all((1, 2, 3))
    mirrored = (flipped == images[..., ::-1]).all((1, 2, 3))
    assert np.all(same ^ mirrored)
    assert 0.4 < same.mean() < 0.6
    cropped = training._augment(images, Recipe(flip=False, crop_padding=2), rng)
    padded = np.pad(images[0, 0], 2, mode="reflect")
    windows = {padded[i : i + 8, j : j + 8].tobytes() for i in range(5) for j in range(5)}
    assert {window.tobytes() for window in cropped[:, 0]} == windows


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write_npz(path, {"a": np.arange(3)})
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").unlink()

    def fail(*_):
        raise OSError

    monkeypatch.setattr(training.os, "replace", fail)
    with pytest.raises(OSError):  # noqa: PT011
        write_npz(path, {"a": np.arange(4)})
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    with np.load(path) as archive:
        assert len(archive["a"]) == 3
    with pytest.raises(ValueError, match="objects"):
        write_npz(path, {"a": np.array([None])})
