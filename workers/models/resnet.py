"""ResNet-20 (He et al., CVPR 2016, sec. 4.2) with the shortcuts of FedLAMA's and of FedALS's experiments."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it


class ZeroScaleNorm(nn.BatchNorm2d):
    """Batch norm whose scale starts at zero, so that a residual block starts as its shortcut.

    The scale is not called ``weight``: by `fedat_service.params.initial_model` a one-dimensional ``weight``
    starts at one, and every other parameter with one dimension at zero.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, affine=False)
        self.scale = nn.Parameter(torch.zeros(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(B, C, H, W)`` channel by channel, then scale and shift."""
        return torch.addcmul(self.shift[:, None, None], super().forward(x), self.scale[:, None, None])


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm, added to a shortcut.

    Args:
        fan_in: Channels of the input.
        channels: Channels of the output.
        stride: Of the first convolution and of the shortcut.
        shortcut_kernel: Size of the shortcut's convolution, which has batch norm; 0: the input itself.
        last_norm: Batch norm after the second convolution.
    """

    def __init__(
        self, fan_in: int, channels: int, stride: int, shortcut_kernel: int, last_norm: type[nn.BatchNorm2d]
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(fan_in, channels, 3, stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3)
        self.norm2 = last_norm(channels)
        self.shortcut = nn.Sequential()
        if shortcut_kernel:
            self.shortcut.append(_convolution(fan_in, channels, shortcut_kernel, stride))
            self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, fan_in, H, W)`` to ``(B, channels, H / stride, W / stride)``."""
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(residual + self.shortcut(x))


class ResNet20(nn.Module):
    """A 3x3 convolution, three stages of three blocks of 16, 32 and 64 channels, global average, `fc`.

    Batch norm has torch's momentum and epsilon under both shortcuts: with the Keras defaults of FedLAMA's
    code the running statistics of a short round would hardly have begun to move.

    Args:
        channels: Channels of an image.
        num_classes: Number of outputs.
        shortcut_kernels: Size of the shortcut's convolution in the first block of each stage; 0: none.
        last_norm: Batch norm after the second convolution of every block.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        shortcut_kernels: tuple[int, int, int],
        last_norm: type[nn.BatchNorm2d] = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        first, second, third = shortcut_kernels
        self.conv = _convolution(channels, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.stage1 = _stage(16, 16, 1, first, last_norm)
        self.stage2 = _stage(16, 32, 2, second, last_norm)
        self.stage3 = _stage(32, 64, 2, third, last_norm)
        self.fc = nn.Linear(64, num_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.relu(self.norm(self.conv(x)))
        x = self.stage3(self.stage2(self.stage1(x)))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores


def resnet20_lama(input_shape: tuple[int, int, int], num_classes: int) -> ResNet20:
    """FedLAMA's (AAAI 2023, official code): a 1x1 shortcut in every stage, residuals start at zero.

    272,762 trainable parameters for three channels and 10 classes.
    """
    return ResNet20(input_shape[0], num_classes, (1, 1, 1), ZeroScaleNorm)


def resnet20_als(input_shape: tuple[int, int, int], num_classes: int) -> ResNet20:
    """FedALS's (official code): a 3x3 shortcut where the image shrinks, in stages 2 and 3.

    292,954 trainable parameters for three channels and 10 classes, 650 of them in the head, `fc`.
    """
    return ResNet20(input_shape[0], num_classes, (0, 3, 3))


def _stage(
    fan_in: int, channels: int, stride: int, shortcut_kernel: int, last_norm: type[nn.BatchNorm2d]
) -> nn.Sequential:
    first = Block(fan_in, channels, stride, shortcut_kernel, last_norm)
    return nn.Sequential(first, *(Block(channels, channels, 1, 0, last_norm) for _ in range(2)))


def _convolution(fan_in: int, channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, channels, kernel, stride, padding=kernel // 2, bias=False)
