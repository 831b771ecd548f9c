import pytest

from fedat_service.errors import RuleError
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.fedals import classifier, fedals, head_by_count, head_by_name


def tensor(name, *shape, trainable=True):
    return TensorSpec(name, shape, "float32", name.rpartition(".")[0], trainable)


NETWORK = Manifest(
    (
        tensor("conv1.weight", 8, 3, 3, 3),
        tensor("bn1.weight", 8),
        tensor("bn1.running_mean", 8, trainable=False),
        tensor("conv2.weight", 8, 8, 3, 3),
        tensor("bn2.weight", 8),
        tensor("bn2.running_mean", 8, trainable=False),
        tensor("fc.weight", 10, 8),
        tensor("fc.bias", 10),
        tensor("counter.running_mean", 1, trainable=False),
    )
)
NAMES = tuple(t.name for t in NETWORK.tensors)


def two_parts(phi, h):
    """A model of a representation and a head of so many elements."""
    return Manifest((tensor("phi.weight", phi), tensor("h.weight", h)))


def test_syncs_end_intervals_as_in_the_golden_schedule(golden):
    case = golden("fedals_schedule")
    tau, alpha, steps = case["inputs"]["tau"], case["inputs"]["alpha"], case["inputs"]["T"]
    cycle = fedals(two_parts(1, 1), ["phi.weight", "h.weight"], alpha, {"h"})
    after = {"phi.weight": [], "h.weight": []}
    for start in range(0, steps, tau * cycle.length):
        for sync in cycle.syncs():
            for name in cycle.due(sync):
                after[name].append(start + sync * tau - 1)
    assert after["h.weight"] == case["outputs"]["end"]["head_sync_after_step"]
    assert after["phi.weight"] == case["outputs"]["end"]["phi_sync_after_step"]
    # Beginning an interval instead, as the authors' code does, sends as much.
    assert len(after["h.weight"]) == len(case["outputs"]["start"]["head_sync_after_step"])
    assert len(after["phi.weight"]) == len(case["outputs"]["start"]["phi_sync_after_step"])


def test_both_ways_together_send_the_golden_numbers_of_parameters(golden, cost):
    case = golden("fedals_table2")
    inputs = case["inputs"]
    manifest = two_parts(inputs["phi"], inputs["h"])
    sent = []
    for alpha in inputs["alpha"]:
        cycle = fedals(manifest, ["phi.weight", "h.weight"], alpha, {"h"})
        rounds = inputs["T"] // (inputs["tau"] * cycle.length)
        sent.append(2 * cost(manifest, [cycle] * rounds))
    assert sent == case["outputs"]["params"]


def test_the_buffers_of_a_layer_go_with_it():
    cycle = fedals(NETWORK, NAMES, 4, {"bn2", "fc"})
    assert cycle.due(1) == ("bn2.weight", "bn2.running_mean", "fc.weight", "fc.bias")
    assert cycle.due(4) == NAMES


def test_what_does_not_travel_is_never_due():
    travelling = [t.name for t in NETWORK.tensors if t.trainable]
    assert "bn2.running_mean" not in fedals(NETWORK, travelling, 2, {"fc"}).due(2)


def test_alpha_1_is_fedavg():
    assert fedals(NETWORK, NAMES, 1, {"fc"}).due(1) == NAMES


def test_an_alpha_below_1_is_refused():
    with pytest.raises(RuleError, match="alpha must be at least 1, got 0"):
        fedals(NETWORK, NAMES, 0, {"fc"})


@pytest.mark.parametrize(
    ("patterns", "head"),
    [(["fc"], {"fc"}), (["bn?", "fc"], {"bn1", "bn2", "fc"}), (["[c]onv2"], {"conv2"})],
)
def test_patterns_name_layers(patterns, head):
    assert head_by_name(NETWORK, patterns) == head


@pytest.mark.parametrize("pattern", ["classifier*", "FC", "fc.weight", ""])
def test_a_pattern_that_matches_nothing_is_refused_by_name(pattern):
    with pytest.raises(RuleError, match=f"head pattern '{pattern.replace('*', '.')}.?' matches no layer"):
        head_by_name(NETWORK, ["fc", pattern])


@pytest.mark.parametrize("patterns", [["*"], ["conv*", "bn*", "[fc]*"]])
def test_a_pattern_that_leaves_no_layer_is_refused_by_name(patterns):
    with pytest.raises(RuleError, match="leaves no layer outside the head") as refusal:
        head_by_name(NETWORK, patterns)
    assert repr(patterns[-1]) in str(refusal.value)


def test_a_head_without_patterns_is_refused():
    with pytest.raises(RuleError, match="at least one pattern"):
        head_by_name(NETWORK, [])


@pytest.mark.parametrize(("count", "head"), [(1, {"fc", "counter"}), (2, {"conv2", "bn2", "fc", "counter"})])
def test_a_count_takes_the_last_layers_with_what_follows_each(count, head):
    assert head_by_count(NETWORK, count) == head


@pytest.mark.parametrize("count", [0, 3, 4])
def test_a_count_of_no_layer_or_all_is_refused(count):
    with pytest.raises(RuleError, match=f"a model of 3 groups of layers has no head of {count}"):
        head_by_count(NETWORK, count)


@pytest.mark.parametrize("side", ["shortcut.0", "downsample.0", "shortcut"])
def test_a_shortcut_belongs_to_what_it_stands_after(side):
    path = [tensor(f"block.{name}.weight", 4, 4, 3, 3) for name in ("conv1", "conv2")]
    tensors = (*path, tensor(f"block.{side}.weight", 4, 4, 1, 1), tensor("fc.weight", 2, 4))
    assert head_by_count(Manifest(tensors), 2) == {"block.conv2", f"block.{side}", "fc"}


def test_a_name_that_only_begins_like_a_shortcut_is_a_layer_like_any_other():
    names = ("a", "shortcuts", "fc")
    assert head_by_count(Manifest(tuple(tensor(f"{n}.weight", 2, 2) for n in names)), 2) == {
        "shortcuts",
        "fc",
    }


def test_the_classifier_is_the_last_layer_that_learns():
    assert classifier(NETWORK) == {"fc"}


def test_a_single_layer_has_no_classifier_of_its_own():
    with pytest.raises(RuleError, match="the model has 1"):
        classifier(Manifest((tensor("fc.weight", 2, 2), tensor("bn.running_mean", 2, trainable=False))))
