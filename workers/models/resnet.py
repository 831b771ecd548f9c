"""ResNet-20 (He et al., CVPR 2016, sec. 4.2) with FedLAMA's and with FedALS's shortcuts, and WideResNets."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

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
        self,
        fan_in: int,
        channels: int,
        stride: int,
        shortcut_kernel: int,
        last_norm: type[nn.BatchNorm2d] = nn.BatchNorm2d,
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


class PreActivationBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions, added to a shortcut.

    He et al. (ECCV 2016), Figure 1b, as WideResNets have it. A shortcut with a convolution starts after the
    first ReLU and has no batch norm.

    Args:
        fan_in: Channels of the input.
        channels: Channels of the output.
        stride: Of the first convolution and of the shortcut.
        shortcut_kernel: Size of the shortcut's convolution; 0: the input itself.
    """

    def __init__(self, fan_in: int, channels: int, stride: int, shortcut_kernel: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = _convolution(fan_in, channels, 3, stride)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3)
        self.shortcut = nn.Sequential()
        if shortcut_kernel:
            self.shortcut.append(_convolution(fan_in, channels, shortcut_kernel, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, fan_in, H, W)`` to ``(B, channels, H / stride, W / stride)``."""
        h = F.relu(self.norm1(x))
        residual: Tensor = self.conv2(F.relu(self.norm2(self.conv1(h))))
        return residual + (self.shortcut(h) if len(self.shortcut) else x)


MakeBlock = Callable[[int, int, int, int], nn.Module]
"""Makes a block of so many channels in and out, of a stride, with a shortcut of a kernel."""


class ResNet(nn.Module):
    """A 3x3 convolution, three stages of blocks of 16, 32 and 64 channels, global average, `fc`.

    Batch norm has torch's momentum and epsilon under all shortcuts: with the Keras defaults of FedLAMA's
    code the running statistics of a short round would hardly have begun to move.

    Args:
        channels: Channels of an image.
        num_classes: Number of outputs.
        make_block: Makes every block.
        shortcut_kernels: Size of the shortcut's convolution in the first block of each stage; 0: none.
        num_blocks: In a stage.
        width: How many times as many channels the blocks have.
        pre_activation: Whether blocks begin with batch norm, so that it follows the last of them as well,
            in place of the first convolution.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        make_block: MakeBlock,
        shortcut_kernels: tuple[int, int, int],
        *,
        num_blocks: int = 3,
        width: int = 1,
        pre_activation: bool = False,
    ) -> None:
        super().__init__()
        sizes = [16, *(16 * width * factor for factor in (1, 2, 4))]
        stages = [
            _stage(make_block, fan_in, size, stride, kernel, num_blocks)
            for (fan_in, size), stride, kernel in zip(
                pairwise(sizes), (1, 2, 2), shortcut_kernels, strict=True
            )
        ]
        self.conv = _convolution(channels, 16, 3)
        if not pre_activation:
            self.norm = nn.BatchNorm2d(16)
        self.stage1, self.stage2, self.stage3 = stages
        if pre_activation:
            self.norm = nn.BatchNorm2d(sizes[-1])
        self.fc = nn.Linear(sizes[-1], num_classes)
        self._pre_activation = pre_activation
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, C, H, W)`` to class scores ``(B, num_classes)``."""
        x = self.conv(x.contiguous(memory_format=torch.channels_last))
        if not self._pre_activation:
            x = F.relu(self.norm(x))
        x = self.stage3(self.stage2(self.stage1(x)))
        if self._pre_activation:
            x = F.relu(self.norm(x))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores


def resnet20_lama(input_shape: tuple[int, int, int], num_classes: int) -> ResNet:
    """FedLAMA's (AAAI 2023, official code): a 1x1 shortcut in every stage, residuals start at zero.

    272,762 trainable parameters for three channels and 10 classes.
    """
    return ResNet(input_shape[0], num_classes, partial(Block, last_norm=ZeroScaleNorm), (1, 1, 1))


def resnet20_als(input_shape: tuple[int, int, int], num_classes: int) -> ResNet:
    """FedALS's (official code): a 3x3 shortcut where the image shrinks, in stages 2 and 3.

    292,954 trainable parameters for three channels and 10 classes, 650 of them in the head, `fc`.
    """
    return ResNet(input_shape[0], num_classes, Block, (0, 3, 3))


def wide_resnet(input_shape: tuple[int, int, int], num_classes: int, *, depth: int, width: int) -> ResNet:
    """WRN-depth-width (Zagoruyko & Komodakis, BMVC 2016), without dropout; `depth` is 6 a block, and 4.

    WRN-28-10 has 36,536,884 trainable parameters for three channels and 100 classes. FedLAMA's own (official
    code) differs: batch norm after the convolutions, and dropout.
    """
    return ResNet(
        input_shape[0],
        num_classes,
        PreActivationBlock,
        (int(width > 1), 1, 1),
        num_blocks=(depth - 4) // 6,
        width=width,
        pre_activation=True,
    )


def _stage(
    make_block: MakeBlock, fan_in: int, channels: int, stride: int, shortcut_kernel: int, num_blocks: int
) -> nn.Sequential:
    first = make_block(fan_in, channels, stride, shortcut_kernel)
    return nn.Sequential(first, *(make_block(channels, channels, 1, 0) for _ in range(num_blocks - 1)))


def _convolution(fan_in: int, channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, channels, kernel, stride, padding=kernel // 2, bias=False)
