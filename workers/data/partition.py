"""Split sample indices over clients.

Every split is a list with one int64 array of indices a client, sorted, disjoint, none of them empty, and a
pure function of its arguments. Symbols: K clients, C classes, N examples.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import RuleError

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]

_TRIES = 1000


def iid(labels: Labels, num_clients: int, seed: int) -> list[Indices]:
    """Shuffle, then cut into parts whose sizes differ by one at most.

    Raises:
        RuleError: If there are fewer examples than clients, or no client.
    """
    _check(labels, num_clients)
    order = np.random.default_rng(seed).permutation(len(labels))
    return _finished(np.array_split(order, num_clients))


def shards(labels: Labels, num_clients: int, shards_per_client: int, seed: int) -> list[Indices]:
    """McMahan et al. (AISTATS 2017, sec. 3): about `shards_per_client` classes a client, equal sizes.

    Raises:
        RuleError: If there are fewer examples than shards, or a count is not positive.
    """
    _check(labels, num_clients)
    if shards_per_client < 1 or num_clients * shards_per_client > len(labels):
        raise RuleError(
            f"{num_clients} clients with {shards_per_client} shards each do not fit {len(labels)} examples"
        )
    deal = np.random.default_rng(seed).permutation(num_clients * shards_per_client)
    return _finished(deal_shards(labels, num_clients, deal))


def deal_shards(labels: Labels, num_clients: int, deal: Indices) -> list[Indices]:
    """Sort by label (stable), cut into ``len(deal)`` shards and give every client the next ones of `deal`.

    Args:
        labels: Shape ``(N,)``.
        num_clients: K; divides ``len(deal)``.
        deal: A permutation of the shards; client i gets shards ``deal[i*s : (i+1)*s]``, ``s = len(deal)/K``.

    Returns:
        Indices of every client, shard after shard.

    Raises:
        RuleError: If the shards cannot be dealt evenly.
    """
    if len(deal) % num_clients:
        raise RuleError(f"{len(deal)} shards cannot be dealt evenly to {num_clients} clients")
    cut = np.array_split(np.argsort(labels, kind="stable"), len(deal))
    hands = deal.reshape(num_clients, -1)
    return [np.concatenate([cut[shard] for shard in hand]) for hand in hands]


def classes_per_client(labels: Labels, num_clients: int, num_classes: int, seed: int) -> list[Indices]:
    """Give every client exactly `num_classes` classes; a class is shared equally by the clients that hold it.

    NIID-Bench's ``#C = k`` (Li et al., ICDE 2022). Every class is held by nearly as many clients.

    Raises:
        RuleError: If `num_classes` is not in 1..C, or K clients cannot hold all C classes, or a class has
            fewer examples than clients that hold it.
    """
    _check(labels, num_clients)
    rng = np.random.default_rng(seed)
    pools = _shuffled_pools(labels, rng)
    total = len(pools)
    if not 1 <= num_classes <= total:
        raise RuleError(f"a client can hold 1..{total} classes, got {num_classes}")
    if num_clients * num_classes < total:
        raise RuleError(f"{num_clients} clients of {num_classes} classes each cannot hold {total} classes")
    held = np.zeros((num_clients, total), bool)
    for client in held:
        least_held_first = np.lexsort((rng.random(total), held.sum(axis=0)))
        client[least_held_first[:num_classes]] = True
    parts: list[list[Indices]] = [[] for _ in range(num_clients)]
    for pool, holders in zip(pools, held.T, strict=True):
        if len(pool) < holders.sum():
            raise RuleError(f"a class of {len(pool)} examples cannot be shared by {holders.sum()} clients")
        shares = np.array_split(pool, holders.sum())
        for holder, share in zip(np.flatnonzero(holders), shares, strict=True):
            parts[holder].append(share)
    return _finished([np.concatenate(part) for part in parts])


def dirichlet(labels: Labels, num_clients: int, alpha: float, seed: int, min_size: int = 1) -> list[Indices]:
    """Share every class out by proportions drawn from ``Dir(alpha * 1_K)`` (Yurochkin et al., ICML 2019).

    How many examples of a class a client gets equals flwr-datasets' `DirichletPartitioner` with
    `self_balancing=False` and the same seed. Sizes are very unequal; all is drawn again until every client
    has `min_size` examples.

    Raises:
        RuleError: If `alpha` is not positive, or 1,000 draws give no such split.
    """
    _check(labels, num_clients, alpha)
    rng = np.random.default_rng(seed)
    class_sizes = np.unique(labels, return_counts=True)[1]
    for _ in range(_TRIES):
        shares = rng.dirichlet(np.full(num_clients, alpha), size=len(class_sizes))
        cuts = (np.cumsum(shares, axis=1)[:, :-1] * class_sizes[:, None]).astype(np.int64)
        sizes = np.diff(cuts, axis=1, prepend=0, append=class_sizes[:, None]).sum(axis=0)
        if sizes.min() >= min_size:
            pools = _shuffled_pools(labels, rng)
            pieces = [np.split(pool, cut) for pool, cut in zip(pools, cuts, strict=True)]
            return _finished([np.concatenate(part) for part in zip(*pieces, strict=True)])
    raise _no_draw("dirichlet", alpha, num_clients, min_size)


def dirichlet_balanced(labels: Labels, num_clients: int, alpha: float, seed: int) -> list[Indices]:
    """Equal sizes, and the label mix of every client drawn from ``Dir(alpha * C * prior)``.

    After Hsu et al. (arXiv:1909.06335), with their concentration times C so that `alpha` means the same as
    in `dirichlet`. Clients draw without replacement, in random order; when a class runs out, the draw goes
    on among the others.

    Raises:
        RuleError: If `alpha` is not positive.
    """
    _check(labels, num_clients, alpha)
    rng = np.random.default_rng(seed)
    pools = _shuffled_pools(labels, rng)
    left = np.array([len(pool) for pool in pools])
    concentration = alpha * len(pools) * left / len(labels)
    sizes = [len(part) for part in np.array_split(labels, num_clients)]
    parts: list[Indices] = [np.empty(0, np.int64)] * num_clients
    for client in rng.permutation(num_clients):
        taken = _take(rng.dirichlet(concentration), sizes[client], left, rng)
        left = left - taken
        pieces = [pool[n : n + k] for pool, n, k in zip(pools, left, taken, strict=True)]
        parts[client] = np.concatenate(pieces)
    return _finished(parts)


def lda(labels: Labels, num_clients: int, alpha: float, seed: int, min_size: int = 10) -> list[Indices]:
    """FedML's "latent Dirichlet allocation", FedLAMA's partition: `dirichlet` that spares full clients.

    Class by class the proportions of clients that hold N/K examples already are set to zero; all is drawn
    again until every client has `min_size` examples.

    Raises:
        RuleError: If `alpha` is not positive, or 1,000 draws give no such split.
    """
    _check(labels, num_clients, alpha)
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        pieces = []
        sizes = np.zeros(num_clients, np.int64)
        for pool in _shuffled_pools(labels, rng):
            proportions = rng.dirichlet(np.full(num_clients, alpha))
            cuts = lda_cuts(proportions, sizes, len(labels), len(pool))
            pieces.append(np.split(pool, cuts))
            sizes += np.diff(cuts, prepend=0, append=len(pool))
        if sizes.min() >= min_size:
            return _finished([np.concatenate(part) for part in zip(*pieces, strict=True)])
    raise _no_draw("lda", alpha, num_clients, min_size)


def lda_cuts(
    proportions: NDArray[np.float64], sizes: NDArray[np.int64], num_examples: int, class_size: int
) -> Indices:
    """Where one class is cut, after ``p_j = 0`` for full clients and renormalising.

    If nothing is left to renormalise, the clients that are not full share equally.

    Args:
        proportions: Shape ``(K,)``, the draw from the Dirichlet distribution.
        sizes: Shape ``(K,)``, examples that each client holds already.
        num_examples: N; a client is full at N/K.
        class_size: Examples of this class.

    Returns:
        Shape ``(K - 1,)``, the cuts between neighbouring clients.
    """
    open_ = sizes < num_examples / len(sizes)
    p = np.where(open_, proportions, 0.0)
    p = p / p.sum() if p.sum() > 0 else open_ / open_.sum()
    return np.asarray((np.cumsum(p) * class_size).astype(np.int64)[:-1])


def natural(ids: NDArray[Any], num_clients: int, min_size: int, seed: int) -> list[Indices]:
    """One client for each of K ids (writers, roles, documents), drawn at random, in the order of the ids.

    Args:
        ids: Shape ``(N,)``, numbers or strings.
        num_clients: K.
        min_size: Ids with fewer examples are left out.
        seed: Of the draw.

    Raises:
        RuleError: If fewer than K ids have `min_size` examples, or there is no client.
    """
    _, position, counts = np.unique(ids, return_inverse=True, return_counts=True)
    large = np.flatnonzero(counts >= min_size)
    if not 1 <= num_clients <= len(large):
        raise RuleError(
            f"{num_clients} natural clients: {len(large)} of {len(counts)} ids have {min_size} examples"
        )
    groups = np.split(np.argsort(position, kind="stable"), np.cumsum(counts)[:-1])
    drawn = np.random.default_rng(seed).choice(large, num_clients, replace=False)
    return _finished([groups[i] for i in np.sort(drawn)])


def local_split(indices: Indices, seed: int, test_fraction: float) -> tuple[Indices, Indices]:
    """Split one client's indices at random into a training and a test part (FedAT: 80 and 20 %).

    Both parts are sorted; the training part is never empty, the test part only for a client with one
    example or a `test_fraction` of zero.

    Raises:
        RuleError: If there is no index, or `test_fraction` is not in 0..1 (1 excluded).
    """
    n = len(indices)
    if n == 0 or not 0 <= test_fraction < 1:
        raise RuleError(f"cannot keep a share of {test_fraction} of {n} examples for the test")
    num_test = min(max(round(n * test_fraction), math.ceil(test_fraction)), n - 1)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(indices[order[num_test:]]), np.sort(indices[order[:num_test]])


def _take(
    q: NDArray[np.float64], size: int, left: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw `size` examples by the mix `q`, no more of a class than are `left`."""
    taken = np.zeros_like(left)
    while (missing := size - taken.sum()) > 0:
        weights = np.where(left > taken, q, 0.0)
        if weights.sum() <= 0:
            weights = (left - taken).astype(np.float64)
        taken = np.minimum(taken + rng.multinomial(missing, weights / weights.sum()), left)
    return taken


def _shuffled_pools(labels: Labels, rng: np.random.Generator) -> list[Indices]:
    """Indices of every class, shuffled, in the order of the classes."""
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def _finished(parts: list[Indices]) -> list[Indices]:
    return [np.sort(part).astype(np.int64, copy=False) for part in parts]


def _check(labels: Labels, num_clients: int, alpha: float = 1.0) -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise RuleError(f"labels must be one-dimensional integers, got {labels.dtype}{list(labels.shape)}")
    if not 1 <= num_clients <= len(labels):
        raise RuleError(f"{len(labels)} examples cannot be split over {num_clients} clients")
    if not 0 < alpha < math.inf:
        raise RuleError(f"alpha must be positive and finite, got {alpha}")


def _no_draw(kind: str, alpha: float, num_clients: int, min_size: int) -> RuleError:
    return RuleError(
        f"no {kind}:{alpha} draw of {_TRIES} gave every one of {num_clients} clients {min_size} examples: "
        "take a larger alpha, fewer clients, or dirichlet-balanced"
    )
