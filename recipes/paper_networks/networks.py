"""The paper's image classifiers in plain torch: LeNet-5, ResNet, DenseNet and WideResNet for small images.

The module can be imported without torch; building a network then says which extra to install.
"""

from __future__ import annotations

import re
from typing import Any

try:
    import torch
    from torch import nn
    from torch.nn import functional as F  # noqa: N812

    _Module: Any = nn.Module
except ModuleNotFoundError:  # the extra `train` is not installed: see `_require_torch`
    torch = nn = F = None  # type: ignore[assignment,unused-ignore]
    _Module = object

__all__ = ["DenseNet", "LeNet5", "ResNet", "WideResNet", "count_parameters", "network", "networks"]

_NAMES = {
    "lenet-5": "LeNet-5 (LeCun et al. 1998)",
    "resnet-DEPTH": "residual network (He et al. 2016), DEPTH = 6n + 2, e.g. resnet-110",
    "densenet-DEPTH-GROWTH": "densely connected network (Huang et al. 2017), DEPTH = 3n + 4, e.g. densenet-40-12",
    "densenet-bc-DEPTH-GROWTH": "the same with bottlenecks and compression, DEPTH = 6n + 4, e.g. densenet-bc-100-12",
    "wrn-DEPTH-WIDTH": "wide residual network (Zagoruyko & Komodakis 2016), DEPTH = 6n + 4, e.g. wrn-28-10",
}


def networks() -> dict[str, str]:
    """Names that :func:`network` understands, with one line each.

    Returns
    -------
    dict of str to str
        Pattern of the name and what it builds.
    """
    return dict(_NAMES)


def network(name: str, *, classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Any:
    """Build one of the paper's networks from its name.

    Parameters
    ----------
    name : str
        For example ``"lenet-5"``, ``"resnet-110"``, ``"densenet-40-12"`` (``"densenet-40"`` for short),
        ``"densenet-bc-100-12"`` or ``"wrn-28-10"``.
    classes : int, default=10
        Number of classes.
    in_channels : int, default=3
        Channels of the images, 1 for grey ones.
    image_size : int, default=32
        Height and width of the images.

    Returns
    -------
    torch.nn.Module
        A network that maps ``(n, in_channels, image_size, image_size)`` to ``(n, classes)`` logits.
    """
    size = {"classes": classes, "in_channels": in_channels, "image_size": image_size}
    if name == "lenet-5":
        return LeNet5(**size)
    if match := re.fullmatch(r"resnet-(\d+)", name):
        return ResNet(int(match[1]), **size)
    if match := re.fullmatch(r"densenet(-bc)?-(\d+)(?:-(\d+))?", name):
        return DenseNet(int(match[2]), int(match[3] or 12), bottleneck=match[1] is not None, **size)
    if match := re.fullmatch(r"wrn-(\d+)-(\d+)", name):
        return WideResNet(int(match[1]), int(match[2]), **size)
    msg = f"unknown network {name!r}; the names are {', '.join(_NAMES)}"
    raise ValueError(msg)


def count_parameters(model: Any) -> int:
    """Number of trainable parameters.

    Parameters
    ----------
    model : torch.nn.Module
        Any network.

    Returns
    -------
    int
        Sum of the sizes of its parameters; running statistics do not count.
    """
    return sum(int(p.numel()) for p in model.parameters() if p.requires_grad)


def _require_torch() -> None:
    if torch is None:
        msg = "the networks need torch; install the extra with: pip install 'mixnmatch[train]'"
        raise ModuleNotFoundError(msg)


def _blocks(depth: int, offset: int, step: int, family: str) -> int:
    """Blocks per stage of a network whose depth is ``step * n + offset``."""
    blocks, rest = divmod(depth - offset, step)
    if blocks < 1 or rest:
        msg = f"the depth of a {family} is {step}n + {offset} with n >= 1, got {depth}"
        raise ValueError(msg)
    return blocks


def _check_size(classes: int, in_channels: int, image_size: int, smallest: int) -> None:
    if classes < 2 or in_channels < 1:
        msg = f"a network needs at least 2 classes and 1 channel, got classes={classes}, in_channels={in_channels}"
        raise ValueError(msg)
    if image_size < smallest:
        msg = f"images of {image_size} x {image_size} are too small for this network, which needs {smallest} or more"
        raise ValueError(msg)


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> Any:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _initialise(model: Any) -> None:
    """He initialisation of the convolutions, zero bias of the classifier, as the residual papers do."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)


class LeNet5(_Module):  # type: ignore[misc]
    """LeNet-5 with rectifiers and maximum pooling.

    Convolutions of 6 and 16 channels (5 x 5), dense layers of 120 and 84 units. Images smaller than 32 x 32 are
    padded with zeros to that size, as LeCun et al. did with their 28 x 28 digits.

    Parameters
    ----------
    classes, in_channels, image_size : int
        As in :func:`network`.
    """

    def __init__(self, *, classes: int = 10, in_channels: int = 3, image_size: int = 32) -> None:
        _require_torch()
        super().__init__()
        _check_size(classes, in_channels, image_size, 12)
        padding = max(0, (33 - image_size) // 2)
        side = ((image_size + 2 * padding - 4) // 2 - 4) // 2
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    def forward(self, x: Any) -> Any:
        """Logits of a batch of images."""
        return self.classifier(self.features(x))


class _BasicBlock(_Module):  # type: ignore[misc]
    """Two convolutions and a parameter-free shortcut (option A of He et al.: subsample, pad with zero channels)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.extra:
            x = F.pad(x, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))
        return F.relu(x + y)


class ResNet(_Module):  # type: ignore[misc]
    """Residual network for small images (He et al. 2016, Section 4.2), three stages of 16, 32 and 64 channels.

    Parameters
    ----------
    depth : int, default=110
        Number of layers with weights, 6n + 2.
    classes, in_channels, image_size : int
        As in :func:`network`.
    """

    def __init__(self, depth: int = 110, *, classes: int = 10, in_channels: int = 3, image_size: int = 32) -> None:
        _require_torch()
        super().__init__()
        _check_size(classes, in_channels, image_size, 4)
        n = _blocks(depth, 2, 6, "ResNet")
        layers = [_conv(in_channels, 16), nn.BatchNorm2d(16), nn.ReLU()]
        channels = 16
        for stage, outputs in enumerate((16, 32, 64)):
            for block in range(n):
                layers.append(_BasicBlock(channels, outputs, 2 if stage and not block else 1))
                channels = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, x: Any) -> Any:
        """Logits of a batch of images."""
        return self.classifier(self.features(x).mean((2, 3)))


class _DenseLayer(_Module):  # type: ignore[misc]
    """BN-ReLU-convolution whose output is appended to its input; with a bottleneck of 4 * growth channels for BC."""

    def __init__(self, inputs: int, growth: int, bottleneck: bool, dropout: float) -> None:
        super().__init__()
        layers = [nn.BatchNorm2d(inputs), nn.ReLU()]
        if bottleneck:
            layers += [_conv(inputs, 4 * growth, 1), nn.Dropout(dropout), nn.BatchNorm2d(4 * growth), nn.ReLU()]
            inputs = 4 * growth
        self.layers = nn.Sequential(*layers, _conv(inputs, growth), nn.Dropout(dropout))

    def forward(self, x: Any) -> Any:
        return torch.cat((x, self.layers(x)), 1)


class DenseNet(_Module):  # type: ignore[misc]
    """Densely connected network for small images (Huang et al. 2017), three dense blocks.

    Parameters
    ----------
    depth : int, default=40
        Number of layers with weights, 3n + 4 (6n + 4 with bottlenecks).
    growth : int, default=12
        Channels that each layer adds.
    bottleneck : bool, default=False
        DenseNet-BC: 1 x 1 bottlenecks, and transitions that halve the channels.
    dropout : float, default=0.0
        Dropout rate after each convolution; Huang et al. use 0.2 where images are not augmented.
    classes, in_channels, image_size : int
        As in :func:`network`.
    """

    def __init__(
        self,
        depth: int = 40,
        growth: int = 12,
        *,
        bottleneck: bool = False,
        dropout: float = 0.0,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
    ) -> None:
        _require_torch()
        super().__init__()
        _check_size(classes, in_channels, image_size, 4)
        n = _blocks(depth, 4, 6 if bottleneck else 3, "DenseNet-BC" if bottleneck else "DenseNet")
        channels = 2 * growth if bottleneck else 16
        layers = [_conv(in_channels, channels)]
        for stage in range(3):
            if stage:
                outputs = channels // 2 if bottleneck else channels
                layers += [nn.BatchNorm2d(channels), nn.ReLU(), _conv(channels, outputs, 1), nn.Dropout(dropout)]
                layers.append(nn.AvgPool2d(2))
                channels = outputs
            for _ in range(n):
                layers.append(_DenseLayer(channels, growth, bottleneck, dropout))
                channels += growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, x: Any) -> Any:
        """Logits of a batch of images."""
        return self.classifier(self.features(x).mean((2, 3)))


class _WideBlock(_Module):  # type: ignore[misc]
    """Pre-activation block with dropout between its convolutions; 1 x 1 convolution as shortcut where sizes change."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, stride=stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = _conv(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else None

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        return shortcut + self.conv2(self.dropout(F.relu(self.bn2(self.conv1(y)))))


class WideResNet(_Module):  # type: ignore[misc]
    """Wide residual network (Zagoruyko & Komodakis 2016), three stages of 16, 32 and 64 times `width` channels.

    Parameters
    ----------
    depth : int, default=28
        Number of layers, 6n + 4.
    width : int, default=10
        Factor by which the stages are widened.
    dropout : float, default=0.3
        Dropout rate inside the blocks; 0.3 in the paper's Appendix F.
    classes, in_channels, image_size : int
        As in :func:`network`.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 10,
        *,
        dropout: float = 0.3,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
    ) -> None:
        _require_torch()
        super().__init__()
        _check_size(classes, in_channels, image_size, 4)
        n = _blocks(depth, 4, 6, "WideResNet")
        if width < 1:
            msg = f"the width of a WideResNet is at least 1, got {width}"
            raise ValueError(msg)
        layers = [_conv(in_channels, 16)]
        channels = 16
        for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range(n):
                layers.append(_WideBlock(channels, outputs, 2 if stage and not block else 1, dropout))
                channels = outputs
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, x: Any) -> Any:
        """Logits of a batch of images."""
        return self.classifier(self.features(x).mean((2, 3)))
