import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from workers.training.stacked import max_pool

built = pytest.mark.skipif(not max_pool.BUILT, reason="no compiler built the C half")
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
sizes = st.integers(2, 9)
CHANNELS_LAST = torch.channels_last
ODD_ONES = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan])


def images_of(shape, dtype, seed):
    """Values of which many are equal, and some are not finite."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(len(ODD_ONES), shape, generator=generator)
    values = torch.where(torch.rand(shape, generator=generator) < 0.5, ODD_ONES[places], places / 3)
    return values.to(dtype).contiguous(memory_format=CHANNELS_LAST)


def direction_of(pooled):
    return torch.linspace(-1, 1, pooled.numel(), dtype=pooled.dtype).reshape(pooled.shape)


def pooled_with_gradient(images, pool=max_pool.max_pool_2x2):
    pooled, back = pool(images)
    return pooled, back(direction_of(pooled))


def torchs(images):
    images = images.clone(memory_format=torch.preserve_format).requires_grad_()
    pooled = F.max_pool2d(images, 2)
    pooled.backward(direction_of(pooled))
    return pooled.detach(), images.grad


def require_same(found, expected):
    """Hold tensors bit by bit, but one NaN is as good as another."""
    for mine, its in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() & ~mine.isnan(), its.signbit() & ~its.isnan())
        assert mine.stride() == its.stride()


@both_types
@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 40), sizes, sizes), seed=st.integers(0, 999))
def test_values_and_gradients_are_torchs_to_the_last_bit(dtype, shape, seed):
    images = images_of(shape, dtype, seed)
    require_same(pooled_with_gradient(images), torchs(images))


@built
def test_the_c_half_serves_images_in_channels_last(monkeypatch):
    monkeypatch.setattr(max_pool.F, "max_pool2d_with_indices", None)
    pooled_with_gradient(torch.randn(2, 3, 4, 4).contiguous(memory_format=CHANNELS_LAST))


@built
@pytest.mark.parametrize(
    "images",
    [
        torch.randn(2, 3, 5, 6),
        torch.zeros(0, 3, 4, 4),
        torch.randn(2, 1, 4, 4),
        torch.randn(1, 2, 4, 4, dtype=torch.float64).contiguous(memory_format=CHANNELS_LAST),
        torch.randn(1, 2**15 + 1, 2, 2).contiguous(memory_format=CHANNELS_LAST),
    ],
)
def test_torch_serves_all_others(images, monkeypatch):
    monkeypatch.setattr(max_pool, "_max_pool", None)
    require_same(pooled_with_gradient(images), torchs(images))


def test_torch_serves_where_the_extension_is_not_built(unbuilt):
    bare = unbuilt("workers.training.stacked.max_pool", "workers.training.stacked._max_pool")
    assert not bare.BUILT
    images = images_of((2, 3, 4, 5), torch.float32, 1)
    require_same(pooled_with_gradient(images, bare.max_pool_2x2), torchs(images))


def test_too_small_images_are_refused_as_torch_does():
    with pytest.raises(RuntimeError, match="too small"):
        max_pool.max_pool_2x2(torch.randn(1, 2, 1, 4).contiguous(memory_format=CHANNELS_LAST))


@built
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    "change",
    [
        {"images": 63}, {"results": 15}, {"winners": 15}, {"images": 65}, {"item": 8}, {"height": 0},
        {"width": -4}, {"channels": 2**62}, {"channels": 3}, {"images": 0, "results": 0, "winners": 0},
        {"item": 2**62},
        {"channels": 2**15 + 1, "images": 2**19 + 16, "results": 2**17 + 4, "winners": 2**17 + 4},
    ],
)  # fmt: skip
def test_buffers_of_other_sizes_are_refused(direction, change):
    given = {"images": 64, "results": 16, "winners": 16, "item": 4, "height": 4, "width": 4, "channels": 4}
    given |= change
    images, results = (np.zeros(given[name], np.float32) for name in ("images", "results"))
    winners = np.zeros(given["winners"], np.uint8)
    with pytest.raises(ValueError, match="not those of such images"):
        getattr(max_pool._max_pool, direction)(
            images, results, winners, given["item"], given["height"], given["width"], given["channels"]
        )
