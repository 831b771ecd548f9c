import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import RuleError
from workers.data.digits import load_digits
from workers.data.partition import (
    classes_per_client,
    deal_shards,
    dirichlet,
    dirichlet_balanced,
    iid,
    lda,
    lda_cuts,
    local_split,
    natural,
    shards,
)

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(lambda y: np.array(y, np.int64))
MANY_LABELS = st.lists(st.integers(0, 4), min_size=30, max_size=60).map(lambda y: np.array(y, np.int64))
SEEDS = st.integers(0, 2**63 - 1)
EVEN = np.repeat(np.arange(10), 60)

SPLITS = {
    "iid": lambda y, k, seed: iid(y, k, seed),
    "shards": lambda y, k, seed: shards(y, k, 2, seed),
    "classes": lambda y, k, seed: classes_per_client(y, k, 2, seed),
    "dirichlet": lambda y, k, seed: dirichlet(y, k, 2.0, seed),
    "dirichlet-balanced": lambda y, k, seed: dirichlet_balanced(y, k, 0.5, seed),
    "lda": lambda y, k, seed: lda(y, k, 2.0, seed, min_size=1),
}


def _counts(labels, parts, num_classes=10):
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts]).astype(np.int64)


@pytest.mark.parametrize("kind", SPLITS)
@settings(deadline=None)
@given(labels=MANY_LABELS, num_clients=st.integers(1, 5), seed=SEEDS)
def test_a_split_covers_all_examples_once_in_sorted_parts_or_is_refused(kind, labels, num_clients, seed):
    try:
        parts = SPLITS[kind](labels, num_clients, seed)
    except RuleError:
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert len(parts) == num_clients
    assert all(part.dtype == np.int64 and len(part) and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("kind", SPLITS)
def test_equal_seeds_give_equal_splits_and_others_do_not(kind):
    first, again, other = (SPLITS[kind](EVEN, 10, seed) for seed in (3, 3, 4))
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert [part.tolist() for part in first] != [part.tolist() for part in other]


@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("num_clients", [0, 4])
def test_a_wrong_number_of_clients_is_named(kind, num_clients):
    with pytest.raises(RuleError, match=f"over {num_clients} clients"):
        SPLITS[kind](np.array([0, 1, 2]), num_clients, 0)


@pytest.mark.parametrize("labels", [np.zeros((4, 1), np.int64), np.zeros(4)])
def test_labels_must_be_a_row_of_integers(labels):
    with pytest.raises(RuleError, match="one-dimensional integers, got"):
        iid(labels, 2, 0)


@given(labels=LABELS, seed=SEEDS, data=st.data())
def test_iid_sizes_differ_by_one_at_most(labels, seed, data):
    num_clients = data.draw(st.integers(1, len(labels)))
    sizes = [len(part) for part in iid(labels, num_clients, seed)]
    assert max(sizes) - min(sizes) <= 1


def test_shards_are_dealt_as_the_golden_case_says(golden):
    case = golden("shard_partition")
    given_, expected = case["inputs"], case["outputs"]
    labels, deal = np.array(given_["labels"]), np.array(given_["shard_perm"])
    assert np.argsort(labels, kind="stable").tolist() == expected["sorted_index"]
    parts = deal_shards(labels, given_["clients"], deal)
    assert [part.tolist() for part in parts] == expected["clients"]


def test_two_shards_are_at_most_two_classes_when_shards_do_not_cross_classes():
    counts = _counts(EVEN, shards(EVEN, 30, 2, seed=1))
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert (counts.sum(axis=1) == 20).all()


def test_shards_that_cannot_be_dealt_are_named():
    with pytest.raises(RuleError, match="30 clients with 3 shards each do not fit 60"):
        shards(np.zeros(60, np.int64), 30, 3, seed=0)
    with pytest.raises(RuleError, match="5 shards cannot be dealt evenly to 2"):
        deal_shards(EVEN, 2, np.arange(5))


@pytest.mark.parametrize("num_classes", [1, 2, 4, 10])
def test_every_client_has_exactly_k_classes_and_classes_are_held_equally(num_classes):
    counts = _counts(EVEN, classes_per_client(EVEN, 20, num_classes, seed=5))
    assert ((counts > 0).sum(axis=1) == num_classes).all()
    assert ((counts > 0).sum(axis=0) == 2 * num_classes).all()


def test_numbers_of_classes_that_make_no_sense_are_named():
    with pytest.raises(RuleError, match=r"a client can hold 1\.\.10 classes, got 11"):
        classes_per_client(EVEN, 20, 11, seed=0)
    with pytest.raises(RuleError, match="3 clients of 3 classes each cannot hold 10"):
        classes_per_client(EVEN, 3, 3, seed=0)
    with pytest.raises(RuleError, match="a class of 1 examples cannot be shared by 2"):
        classes_per_client(np.array([0, 0, 1]), 2, 2, seed=0)


def test_dirichlet_counts_on_digits_equal_flwr_datasets():
    labels = load_digits().labels
    assert _counts(labels, dirichlet(labels, 10, 0.5, seed=0)).tolist() == [
        [12, 0, 8, 5, 0, 0, 2, 1, 1, 6],
        [0, 28, 3, 2, 40, 16, 30, 27, 45, 0],
        [27, 23, 1, 24, 0, 25, 93, 3, 11, 0],
        [10, 30, 50, 11, 84, 2, 9, 5, 24, 1],
        [9, 31, 83, 14, 1, 74, 36, 2, 2, 34],
        [27, 1, 7, 24, 29, 2, 5, 30, 21, 46],
        [36, 15, 11, 42, 4, 34, 0, 30, 0, 47],
        [18, 14, 4, 16, 18, 0, 5, 11, 7, 0],
        [36, 19, 9, 10, 1, 8, 0, 43, 37, 33],
        [3, 21, 1, 35, 4, 21, 1, 27, 26, 13],
    ]


@pytest.mark.parametrize(
    ("alpha", "sha256"),
    [
        (0.1, "3b9dadffdc5bcc354247bec4b67f27d7fe8b6ecee938146780d50559b61d2912"),
        (0.5, "008ecf58522dc8a06390d5138ee1ef305f6383892da122787d6bb083be561ee2"),
        (1.0, "3e8c6085243f867c08a3e481d75e8b2a300111400fd8b0a48aa911a6c1650aba"),
    ],
)
def test_dirichlet_counts_on_fashion_mnist_equal_flwr_datasets(fashion_mnist, alpha, sha256):
    labels = fashion_mnist.labels
    counts = _counts(labels, dirichlet(labels, 100, alpha, seed=0))
    assert hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest() == sha256


def test_dirichlet_holds_to_the_smallest_size():
    assert min(map(len, dirichlet(EVEN, 20, 0.5, seed=2, min_size=5))) >= 5


@pytest.mark.parametrize("splitter", [dirichlet, lda])
def test_a_draw_that_never_succeeds_is_refused_with_advice(splitter):
    with pytest.raises(RuleError, match=r":0\.01 draw of 1000 .* 30 clients 15 examples: take a larger"):
        splitter(EVEN, 30, 0.01, seed=0, min_size=15)


@pytest.mark.parametrize("splitter", [dirichlet, dirichlet_balanced, lda])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_an_alpha_that_is_not_positive_is_named(splitter, alpha):
    with pytest.raises(RuleError, match=f"alpha must be positive and finite, got {alpha}"):
        splitter(EVEN, 10, alpha, seed=0)


@given(labels=LABELS, seed=SEEDS, alpha=st.sampled_from([1e-3, 0.1, 10.0]), data=st.data())
def test_balanced_sizes_differ_by_one_at_most(labels, seed, alpha, data):
    num_clients = data.draw(st.integers(1, len(labels)))
    sizes = [len(part) for part in dirichlet_balanced(labels, num_clients, alpha, seed)]
    assert max(sizes) - min(sizes) <= 1


def test_balanced_clients_take_what_there_is_when_their_classes_are_used_up():
    parts = dirichlet_balanced(EVEN, 10, 1e-3, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    assert {len(part) for part in parts} == {60}


def test_balanced_mixes_are_skewed_for_a_small_alpha_and_even_for_a_large_one():
    skewed, even = (
        _counts(EVEN, dirichlet_balanced(EVEN, 10, alpha, seed=0)).max(axis=1).mean() for alpha in (0.05, 1e4)
    )
    assert even < 12
    assert skewed > 30


def test_lda_cuts_one_class_as_the_golden_case_says(golden):
    case = golden("dirichlet_balance_step")
    given_, expected = case["inputs"], case["outputs"]
    sizes = np.array(given_["sizes"])
    cuts = lda_cuts(np.array(given_["proportions"]), sizes, given_["N"], given_["class_count"])
    assert cuts.tolist() == expected["cuts"]
    assert np.diff(cuts, prepend=0, append=given_["class_count"]).tolist() == expected["counts"]


def test_lda_shares_a_class_equally_when_the_draw_gives_the_open_clients_nothing():
    cuts = lda_cuts(np.array([1.0, 0.0, 0.0]), np.array([50, 0, 0]), 90, 10)
    assert cuts.tolist() == [0, 5]


def test_lda_gives_every_client_ten_examples():
    assert min(map(len, lda(EVEN, 20, 0.1, seed=0))) >= 10


def test_natural_clients_are_the_ids_in_their_order():
    parts = natural(np.array(["b", "a", "b", "c", "a", "b"]), 3, 1, seed=0)
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5], [3]]


def test_natural_clients_are_drawn_by_the_seed_when_there_are_more_ids():
    ids = np.repeat(np.arange(50), 2)
    first, again, other = ([ids[part[0]] for part in natural(ids, 5, 1, seed)] for seed in (1, 1, 2))
    assert first == again == sorted(set(first))
    assert first != other


def test_small_natural_clients_are_left_out():
    ids = np.array([7, 7, 9])
    assert [part.tolist() for part in natural(ids, 1, 2, seed=0)] == [[0, 1]]
    with pytest.raises(RuleError, match="2 natural clients: 1 of 2 ids have 2 examples"):
        natural(ids, 2, 2, seed=0)
    with pytest.raises(RuleError, match="0 natural clients"):
        natural(ids, 0, 1, seed=0)


def test_a_local_split_keeps_a_fifth_for_the_test():
    train, test = local_split(np.arange(600), seed=0, test_fraction=0.2)
    assert (len(train), len(test)) == (480, 120)


@given(n=st.integers(1, 50), seed=SEEDS, test_fraction=st.floats(0, 0.999))
def test_a_local_split_loses_nothing_and_leaves_something_to_train_on(n, seed, test_fraction):
    indices = np.arange(n) * 3
    train, test = local_split(indices, seed, test_fraction)
    assert sorted([*train, *test]) == indices.tolist()
    assert len(train) >= 1
    assert len(test) >= 1 or n == 1 or test_fraction == 0
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()


@pytest.mark.parametrize(("n", "test_fraction"), [(0, 0.2), (5, 1.0), (5, -0.1), (5, float("nan"))])
def test_a_local_split_of_nothing_or_by_no_share_is_named(n, test_fraction):
    with pytest.raises(RuleError, match=f"a share of {test_fraction} of {n} examples"):
        local_split(np.arange(n), 0, test_fraction)
