import pytest
import torch
from torch import nn

from fedat_service.errors import RuleError
from fedat_service.schedules.fedals import head_by_count
from workers.models.networks import build
from workers.models.resnet import Block, ZeroScaleNorm
from workers.models.state import manifest_of, params_of

BOTH = pytest.mark.parametrize("name", ["resnet20-lama", "resnet20-als"])


def _sizes(name):
    """Sizes of the trainable tensors by name, and the number of buffer values by dtype."""
    trainable, buffers = {}, {"float32": 0, "int64": 0}
    for tensor in manifest_of(build(name, (3, 32, 32), 10, seed=0)).tensors:
        if tensor.trainable:
            trainable[tensor.name] = tensor.size
        else:
            buffers[tensor.dtype] += tensor.size
    return trainable, buffers


def test_fedlamas_network_has_its_published_tensors():
    trainable, buffers = _sizes("resnet20-lama")
    kernels = [name for name, size in trainable.items() if size >= 256]
    assert len(trainable) == 68
    assert (len(kernels), sum(trainable[name] for name in kernels)) == (23, 271_152)
    assert buffers == {"float32": 1_600, "int64": 22}


def test_fedals_network_has_its_published_body_and_head():
    trainable, buffers = _sizes("resnet20-als")
    head = trainable.pop("fc.weight") + trainable.pop("fc.bias")
    assert (sum(trainable.values()), head) == (292_304, 650)
    assert buffers == {"float32": 1_568, "int64": 21}


@BOTH
@pytest.mark.parametrize(
    ("count", "first"),
    [
        (1, "fc"),
        (2, "stage3.2.conv2"),
        (5, "stage3.1.conv1"),
        (6, "stage3.0.conv2"),
        (8, "stage2.2.conv2"),
        (12, "stage2.0.conv2"),
        (18, "stage1.0.conv2"),
        (19, "stage1.0.conv1"),
    ],
)
def test_a_head_of_some_of_fedals_20_groups_begins_with_a_convolution_of_the_path(name, count, first):
    manifest = manifest_of(build(name, (3, 32, 32), 10, seed=0))
    head = head_by_count(manifest, count)
    assert head == set(manifest.layers[manifest.layers.index(first) :])


@BOTH
def test_a_shortcut_has_no_group_of_its_own(name):
    manifest = manifest_of(build(name, (3, 32, 32), 10, seed=0))
    assert not any(
        "shortcut" in min(head_by_count(manifest, n), key=manifest.layers.index) for n in range(1, 20)
    )
    with pytest.raises(RuleError, match="20 groups"):
        head_by_count(manifest, 20)


def test_fedlamas_residuals_start_at_zero_and_fedals_do_not():
    block = build("resnet20-lama", (3, 32, 32), 10, seed=0).stage2[0]
    x = torch.rand(2, 16, 8, 8)
    torch.testing.assert_close(block(x), torch.relu(block.shortcut(x)))
    other = build("resnet20-als", (3, 32, 32), 10, seed=0).stage2[0]
    assert not torch.allclose(other(x), torch.relu(other.shortcut(x)))


def test_shortcuts_are_where_the_papers_put_them():
    places = {}
    for name in ("resnet20-lama", "resnet20-als"):
        blocks = [m for m in build(name, (3, 32, 32), 10, 0).modules() if isinstance(m, Block)]
        places[name] = [block.shortcut[0].kernel_size[0] if len(block.shortcut) else 0 for block in blocks]
    assert places == {
        "resnet20-lama": [1, 0, 0, 1, 0, 0, 1, 0, 0],
        "resnet20-als": [0, 0, 0, 3, 0, 0, 3, 0, 0],
    }


@BOTH
def test_batch_norm_starts_neutral(name):
    params = params_of(build(name, (1, 8, 8), 10, seed=0))
    assert all((array == 1).all() for key, array in params.items() if key.endswith("norm.weight"))
    assert all((array == 1).all() for key, array in params.items() if key.endswith("running_var"))
    assert all((array == 0).all() for key, array in params.items() if key.endswith("running_mean"))


@BOTH
def test_the_smallest_image_trains_in_a_batch_of_one(name):
    model = build(name, (1, 5, 5), 10, seed=0)
    model(torch.rand(1, 1, 5, 5)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_norm_with_its_scale_at_one_is_batch_norm():
    ours, usual = ZeroScaleNorm(3), nn.BatchNorm2d(3)
    nn.init.ones_(ours.scale)
    nn.init.constant_(ours.shift, 0.5)
    nn.init.constant_(usual.bias, 0.5)
    x = torch.rand(4, 3, 5, 5)
    torch.testing.assert_close(ours(x), usual(x))
    torch.testing.assert_close(ours.running_var, usual.running_var)
