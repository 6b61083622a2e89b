import pytest

torch = pytest.importorskip("torch")

from paper_networks.networks import (  # noqa: E402
    DenseNet,
    LeNet5,
    ResNet,
    WideResNet,
    count_parameters,
    network,
    networks,
)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lenet-5", 62_006),
        ("resnet-20", 269_722),  # 0.27M in He et al. (2016), Table 6
        ("resnet-110", 1_727_962),  # 1.7M
        ("densenet-40", 1_019_722),  # 1.0M in Huang et al. (2017), Table 2
        ("densenet-40-12", 1_019_722),
        ("densenet-bc-100-12", 769_162),  # 0.8M
        ("wrn-16-4", 2_748_890),  # 2.7M in Zagoruyko & Komodakis (2016)
        ("wrn-28-10", 36_479_194),  # 36.5M, Table 4
    ],
)
def test_parameter_counts_match_the_literature(name, count):
    assert count_parameters(network(name)) == count


def test_lenet_on_grey_digits_has_the_classical_size():
    assert count_parameters(network("lenet-5", in_channels=1, image_size=28)) == 61_706


@pytest.mark.parametrize("name", ["lenet-5", "resnet-8", "densenet-10-4", "densenet-bc-16-4", "wrn-10-2"])
@pytest.mark.parametrize(("channels", "size", "classes"), [(3, 32, 10), (1, 28, 10), (3, 32, 100), (3, 48, 7)])
def test_shapes_and_gradients(name, channels, size, classes):
    model = network(name, classes=classes, in_channels=channels, image_size=size)
    logits = model(torch.randn(2, channels, size, size))
    assert logits.shape == (2, classes)
    assert torch.isfinite(logits).all()
    logits.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_depth_counts_layers_with_weights():
    convolutions = sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in ResNet(110).modules())
    assert convolutions == 110
    convolutions = sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in DenseNet(40, 12).modules())
    assert convolutions == 40


def test_wide_resnet_drops_out_in_training_only():
    model = WideResNet(10, 1)
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}
    x = torch.randn(4, 3, 32, 32)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(x), model(x))
        model.train()
        assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("build", [lambda: ResNet(21), lambda: DenseNet(41), lambda: WideResNet(27), lambda: ResNet(2)])
def test_impossible_depths_are_refused(build):
    with pytest.raises(ValueError, match="depth"):
        build()


def test_other_refusals():
    with pytest.raises(ValueError, match="unknown network 'vgg'"):
        network("vgg")
    with pytest.raises(ValueError, match="too small"):
        LeNet5(image_size=8)
    with pytest.raises(ValueError, match="classes"):
        LeNet5(classes=1)
    with pytest.raises(ValueError, match="width"):
        WideResNet(10, 0)
    assert "wrn-DEPTH-WIDTH" in networks()
