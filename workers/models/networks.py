"""The networks by name, and the small ones: logistic regression, the MLP and FedAT's CNN."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from fedat_service.errors import ConfigError
from fedat_service.params import initial_model, to_params
from workers.models.convolutional import LeafCnn, MnistCnn
from workers.models.language import small_llama, smollm2
from workers.models.resnet import resnet20_als, resnet20_lama, wide_resnet
from workers.models.state import load_params, manifest_of

InputShape = tuple[int, int, int]


class Logistic(nn.Module):
    """Softmax regression on the pixels: one linear layer, `fc`."""

    def __init__(self, input_shape: InputShape, num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(math.prod(input_shape), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        scores: Tensor = self.fc(x.flatten(1))
        return scores


class Mlp(nn.Module):
    """One hidden layer with ReLU; 784-200-10 has 159,010 parameters (McMahan's and Fed-LAMB's MLP)."""

    def __init__(self, input_shape: InputShape, num_classes: int, hidden: int = 200) -> None:
        super().__init__()
        self.fc1 = nn.Linear(math.prod(input_shape), hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores


class Cnn(nn.Module):
    """FedAT's CNN (SC '21, sec. 6), read as the tutorial of TensorFlow, in which its authors wrote it.

    3x3 convolutions 32-64-64 with ReLU, 2x2 pooling after the first two, then 64-classes: 93,322 parameters
    for 1x28x28 and 122,570 for 3x32x32 images with 10 classes. Small images, of which nothing would be left,
    are padded and pooled once more (ADR 12). Works channels-last: on a CPU it trains in .8 and evaluates in
    .4 of the time; pooling before ReLU gives the same values and gradients for less.
    """

    def __init__(self, input_shape: InputShape, num_classes: int) -> None:
        super().__init__()
        channels, *sides = input_shape
        left = [((side - 2) // 2 - 2) // 2 - 2 for side in sides]
        self._padded = min(left) < 1
        if self._padded:
            left = [side // 8 for side in sides]
        padding = int(self._padded)
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=padding)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=padding)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=padding)
        self.fc1 = nn.Linear(64 * math.prod(left), 64)
        self.fc2 = nn.Linear(64, num_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        x = x.contiguous(memory_format=torch.channels_last)
        for conv in (self.conv1, self.conv2):
            x = F.relu(F.max_pool2d(conv(x), 2))
        x = self.conv3(x)
        x = F.relu(F.max_pool2d(x, 2) if self._padded else x)
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores


@dataclass(frozen=True, slots=True)
class _Network:
    """How a network is made, and the smallest side of an image that it can take."""

    make: Callable[[InputShape, int], nn.Module]
    smallest: int = 1


_NETWORKS: Mapping[str, _Network] = {
    "logistic": _Network(Logistic),
    "mlp": _Network(Mlp),
    "cnn": _Network(Cnn, 8),
    "mnist-cnn": _Network(MnistCnn, 16),
    "leaf-cnn": _Network(LeafCnn, 4),
    # Below 5 pixels its last stage would be 1x1, which batch norm cannot normalise in a batch of one.
    "resnet20-lama": _Network(resnet20_lama, 5),
    "resnet20-als": _Network(resnet20_als, 5),
    "wrn-10-2": _Network(partial(wide_resnet, depth=10, width=2), 5),
    "wrn-28-10": _Network(partial(wide_resnet, depth=28, width=10), 5),
    "llama-6-64": _Network(small_llama),
    "smollm2-135m": _Network(smollm2),
}

NAMES = tuple(_NETWORKS)
"""What `build` builds."""


def build(name: str, input_shape: InputShape, num_classes: int, seed: int) -> nn.Module:
    """Build a network with the weights that `fedat_service.params.initial_model` draws from `seed`.

    So Glorot-uniform weights and zero biases, equal to what a service with the same seed starts from.

    Args:
        name: One of `NAMES`.
        input_shape: Shape ``(C, H, W)`` of an image.
        num_classes: Number of outputs.
        seed: Seed of the weights.

    Raises:
        ConfigError: If there is no such network, or the images or classes are too few for it.
    """
    if name not in _NETWORKS:
        raise ConfigError(f"unknown model {name!r}: one of {', '.join(NAMES)}")
    network = _NETWORKS[name]
    smallest = network.smallest
    if num_classes < 2 or input_shape[0] < 1 or min(input_shape[1:]) < smallest:
        raise ConfigError(
            f"model {name!r} needs 2 classes and images of {smallest}x{smallest} pixels or more, "
            f"got {num_classes} and {input_shape}"
        )
    with torch.random.fork_rng(devices=[]):
        module = network.make(input_shape, num_classes)
    manifest = manifest_of(module)
    load_params(module, to_params(initial_model(manifest, seed), manifest))
    return module
