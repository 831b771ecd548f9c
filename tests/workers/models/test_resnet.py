import pytest
import torch
from torch import nn
from torch.nn import functional

from fedat_service.errors import RuleError
from fedat_service.schedules.fedals import head_by_count
from fedat_service.schedules.fedlama import fedlama
from workers.models.networks import build
from workers.models.resnet import Block, PreActivationBlock, ZeroScaleNorm, wide_resnet
from workers.models.state import manifest_of, params_of

BOTH = pytest.mark.parametrize("name", ["resnet20-lama", "resnet20-als"])
ALL = pytest.mark.parametrize("name", ["resnet20-lama", "resnet20-als", "wrn-10-2"])


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


@ALL
def test_batch_norm_starts_neutral(name):
    params = params_of(build(name, (1, 8, 8), 10, seed=0))
    assert all((array == 1).all() for key, array in params.items() if key.endswith("norm.weight"))
    assert all((array == 1).all() for key, array in params.items() if key.endswith("running_var"))
    assert all((array == 0).all() for key, array in params.items() if key.endswith("running_mean"))


@ALL
def test_the_smallest_image_trains_in_a_batch_of_one(name):
    model = build(name, (1, 5, 5), 10, seed=0)
    model(torch.rand(1, 1, 5, 5)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("depth", "width", "num_classes", "num_parameters"),
    [(28, 10, 100, 36_536_884), (28, 10, 10, 36_479_194), (16, 1, 10, 175_066)],
)
def test_wide_resnets_have_as_many_parameters_as_published(depth, width, num_classes, num_parameters):
    with torch.device("meta"):
        model = wide_resnet((3, 32, 32), num_classes, depth=depth, width=width)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters


@pytest.mark.parametrize(("depth", "blocks"), [(10, 3), (16, 6), (28, 12)])
def test_a_wide_resnet_has_as_many_convolutions_as_its_depth_says(depth, blocks):
    with torch.device("meta"):
        modules = list(wide_resnet((3, 32, 32), 10, depth=depth, width=2).modules())
    convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
    assert sum(isinstance(module, PreActivationBlock) for module in modules) == blocks
    # The depth counts the shortcuts' convolutions, not `fc`.
    assert len(convolutions) == depth
    assert [one.out_channels for one in convolutions if one.kernel_size == (1, 1)] == [32, 64, 128]


def test_a_wide_resnets_blocks_normalise_before_each_convolution_and_add_what_came_in():
    model = build("wrn-10-2", (3, 32, 32), 10, seed=0)
    block, x = model.stage2[0], torch.rand(2, 32, 8, 8)
    h = torch.relu(functional.batch_norm(x, None, None, training=True))
    second = torch.relu(functional.batch_norm(block.conv1(h), None, None, training=True))
    torch.testing.assert_close(block(x), block.conv2(second) + block.shortcut(h))
    plain = PreActivationBlock(4, 4, 1, 0)
    nn.init.zeros_(plain.conv2.weight)
    x = torch.rand(2, 4, 6, 6)
    torch.testing.assert_close(plain(x), x)


def test_a_wide_resnet_normalises_what_its_last_block_gives():
    model = build("wrn-10-2", (3, 32, 32), 10, seed=0).eval()
    x = torch.rand(2, 3, 32, 32)
    h = model.stage3(model.stage2(model.stage1(model.conv(x))))
    expected = model.fc(torch.relu(model.norm(h)).mean((2, 3)))
    torch.testing.assert_close(model(x), expected)


def test_fedals_groups_of_a_wide_resnet_begin_with_a_convolution_of_the_path():
    manifest = manifest_of(build("wrn-10-2", (3, 32, 32), 10, seed=0))
    assert head_by_count(manifest, 1) == {"fc"}
    assert head_by_count(manifest, 2) == {"stage3.0.conv2", "stage3.0.shortcut.0", "norm", "fc"}
    with pytest.raises(RuleError, match="8 groups"):
        head_by_count(manifest, 8)


@pytest.mark.parametrize("unit", ["kernel-tensor", "layer"])
def test_fedlama_extends_the_convolutions_of_a_wide_resnet_that_hardly_drift(unit):
    manifest = manifest_of(build("wrn-10-2", (3, 32, 32), 10, seed=0))
    names = [tensor.name for tensor in manifest.tensors]
    drift = {tensor.name: 1.0 for tensor in manifest.tensors if tensor.trainable}
    cycle = fedlama(manifest, names, 2, drift | {"stage3.0.conv2.weight": 1e-9}, unit=unit)
    assert cycle.intervals["stage3.0.conv2.weight"] == 2
    assert cycle.intervals["fc.bias"] == 1
    assert {cycle.intervals[name] for name in names} == {1, 2}


def test_a_norm_with_its_scale_at_one_is_batch_norm():
    ours, usual = ZeroScaleNorm(3), nn.BatchNorm2d(3)
    nn.init.ones_(ours.scale)
    nn.init.constant_(ours.shift, 0.5)
    nn.init.constant_(usual.bias, 0.5)
    x = torch.rand(4, 3, 5, 5)
    torch.testing.assert_close(ours(x), usual(x))
    torch.testing.assert_close(ours.running_var, usual.running_var)
