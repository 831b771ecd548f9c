"""Who trains next: cohorts drawn inside a tier, and tiers drawn where one trains at a time."""

from dataclasses import replace

import numpy as np

from fedat_service.federation.state import State, Tier
from fedat_service.tiering import tier_chances

# Purpose numbers of generators: no two purposes share random numbers.
_COHORT_STREAM = 1
_TIER_STREAM = 3


def draw_cohort(state: State, tier: Tier) -> tuple[str, ...]:
    """Draw among the idle, uniformly, none twice; they are sorted, so order of arrival plays no part."""
    spec = state.spec
    ranks = draw_ranks(spec.seed, tier.number, tier.rounds_opened + 1, len(tier.idle), spec.round_size)
    return tuple(sorted(tier.idle.at(ranks)))


def draw_ranks(seed: int, tier: int, number: int, num_idle: int, size: int) -> list[int]:
    """Draw a round's cohort as places among the sorted idle; every round has a generator of its own.

    Args:
        seed: Of the federation.
        tier: Number of the tier, from 1.
        number: Of the round in its tier, from 1.
        num_idle: How many can be drawn.
        size: How many are drawn, all if there are fewer.

    Returns:
        Places from 0, no two equal, in the order drawn.
    """
    rng = np.random.default_rng((seed, _COHORT_STREAM, tier, number))
    return list(rng.choice(num_idle, min(size, num_idle), replace=False).tolist())


def tiers_with_room(state: State) -> list[int]:
    """Where rounds can be opened: the number of a tier, once for each round that it has room for."""
    spec = state.spec
    if spec.rule.drawn:
        return _draw_tier(state)
    numbers = []
    for tier in state.tiers:
        room = spec.rounds_at_once - len(tier.rounds)
        # Every round takes a whole cohort, but the last one takes who is left.
        numbers += [tier.number] * min(room, -(-len(tier.idle) // spec.round_size))
    return numbers


def _draw_tier(state: State) -> list[int]:
    """Draw among the tiers that have somebody to train and credits left; nobody while a round is open."""
    left = credits_left(state)
    able = [tier.number for tier in state.tiers if tier.idle and (left is None or left[tier.number - 1])]
    if not able or any(tier.rounds for tier in state.tiers):
        return []
    chances = state.chances or tier_chances([None] * len(state.tiers))
    p = np.array([chances[number - 1] for number in able])
    opened = sum(tier.rounds_opened for tier in state.tiers)
    rng = np.random.default_rng((state.spec.seed, _TIER_STREAM, opened + 1))
    return [int(rng.choice(able, p=p / p.sum()))]


def credits_left(state: State) -> list[int] | None:
    """How many versions each tier may still make; None without limit."""
    whole = state.spec.credits
    return None if whole is None else [whole - tier.update_count for tier in state.tiers]


def look_again(state: State) -> State:
    """After every `interval` versions, make the tiers likelier in which the model does worse (TiFL)."""
    spec = state.spec
    if not spec.rule.drawn or state.version % spec.interval:
        return state
    return replace(state, chances=tier_chances(state.tier_accuracies, credits_left(state)))
