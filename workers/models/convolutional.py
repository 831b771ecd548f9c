"""Two small convolutional networks that papers on federated learning compare on.

They work channels-last, which a CPU does in 0.6 to 1.0 of the time.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it


class LeafCnn(nn.Module):
    """LEAF's CNN for FEMNIST (Caldas et al., arXiv:1812.01097), which FedLAMA trains too.

    Two 5x5 convolutions of 32 and 64 channels, each with ReLU and 2x2 pooling, then 2048-classes:
    6,603,710 parameters for 1x28x28 images with 62 classes, 97% of them in `fc1`.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * (height // 4) * (width // 4), 2048)
        self.fc2 = nn.Linear(2048, num_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        x = x.contiguous(memory_format=torch.channels_last)
        for conv in (self.conv1, self.conv2):
            x = F.relu(F.max_pool2d(conv(x), 2))
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores


class MnistCnn(nn.Module):
    """The MNIST network of PyTorch's examples, on which Fed-LAMB is compared.

    Two 5x5 convolutions of 10 and 20 channels without padding, each with 2x2 pooling and ReLU, then
    50-classes, with dropout before the second pooling (whole channels) and before the last layer:
    21,840 parameters for 1x28x28 images with 10 classes.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc1 = nn.Linear(20 * _side(height) * _side(width), 50)
        self.fc2 = nn.Linear(50, num_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), training=self.training), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        scores: Tensor = self.fc2(x)
        return scores


def _side(pixels: int) -> int:
    """Side of an image after both convolutions and poolings."""
    return ((pixels - 4) // 2 - 4) // 2
