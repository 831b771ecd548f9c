import json
import math
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import ConfigError
from workers.latency import (
    FEDAT_PARTS_S,
    FORMS,
    DropOuts,
    FedATParts,
    LogNormal,
    Pareto,
    Trace,
    Uniform,
    parse_latency,
    read_trace,
)

TEXTS = ["fedat", "uniform:0:5", "lognormal:1.0:0.5", "pareto:2:1.5", "none"]
SEEDS = st.integers(0, 2**63 - 1)
DRAWS = st.tuples(st.integers(0, 99), st.integers(0, 1000))


@pytest.mark.parametrize("text", TEXTS)
@given(draws=st.lists(DRAWS, min_size=1, max_size=8), seed=SEEDS)
def test_a_latency_does_not_depend_on_the_order_of_the_draws(text, draws, seed):
    forward = [parse_latency(text, 100, seed).sample(*draw) for draw in draws]
    model = parse_latency(text, 100, seed)
    assert [model.sample(*draw) for draw in reversed(draws)] == forward[::-1]


@pytest.mark.parametrize("text", TEXTS)
@given(draw=DRAWS, seed=SEEDS)
def test_a_latency_is_a_finite_time(text, draw, seed):
    assert 0 <= parse_latency(text, 100, seed).sample(*draw) < math.inf


@pytest.mark.parametrize("text", TEXTS[1:4])
def test_every_client_participation_and_seed_has_a_latency_of_its_own(text):
    models = [parse_latency(text, 100, seed) for seed in (0, 1, 2**32)]
    values = {model.sample(client, n) for model in models for client in range(5) for n in range(5)}
    assert len(values) == 75


@given(num_clients=st.integers(1, 60), seed=SEEDS)
def test_fedat_parts_are_equal_in_size(num_clients, seed):
    parts = FedATParts(num_clients, seed).parts
    sizes = [parts.count(part) for part in range(5)]
    assert sum(sizes) == num_clients
    assert max(sizes) - min(sizes) <= 1


def test_fedat_parts_do_not_follow_the_numbers_of_the_clients():
    parts = FedATParts(100, seed=0).parts
    assert set(parts[:20]) == set(range(5))
    assert parts != FedATParts(100, seed=1).parts


@given(draw=DRAWS, seed=SEEDS)
def test_a_fedat_delay_lies_within_its_part(draw, seed):
    model = FedATParts(100, seed)
    low_s, high_s = FEDAT_PARTS_S[model.parts[draw[0]]]
    assert low_s <= model.sample(*draw) <= high_s


def test_fedat_delays_fill_their_part_and_the_fastest_part_does_not_wait():
    model = FedATParts(100, seed=0)
    slow, fast = model.parts.index(4), model.parts.index(0)
    delays_s = [model.sample(slow, n) for n in range(300)]
    assert min(delays_s) < 20.5
    assert max(delays_s) > 29.5
    assert fmean(delays_s) == pytest.approx(25, abs=0.5)
    assert {model.sample(fast, n) for n in range(10)} == {0.0}


def test_uniform_fills_its_interval():
    delays_s = [Uniform(2, 4, seed=0).sample(0, n) for n in range(300)]
    assert min(delays_s) == pytest.approx(2, abs=0.05)
    assert max(delays_s) == pytest.approx(4, abs=0.05)


def test_lognormal_has_its_median_and_spread():
    delays_s = [LogNormal(3.0, 0.5, seed=0).sample(0, n) for n in range(2000)]
    assert median(delays_s) == pytest.approx(3, rel=0.05)
    assert fmean(delays_s) == pytest.approx(3 * math.exp(0.125), rel=0.05)


def test_pareto_has_its_minimum_and_tail():
    delays_s = [Pareto(2.0, 1.5, seed=0).sample(0, n) for n in range(2000)]
    assert min(delays_s) >= 2
    assert sum(delay > 8 for delay in delays_s) / 2000 == pytest.approx(4**-1.5, abs=0.02)


def test_compute_time_is_added_to_every_latency():
    plain, computing = (parse_latency("uniform:0:5", 10, 3, compute_s=c) for c in (0.0, 20.0))
    assert computing.sample(4, 2) == 20 + plain.sample(4, 2)


def test_none_takes_no_time():
    assert parse_latency("none", 10, 0).sample(3, 3) == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unknown latency ''"),
        ("gamma:1:2", "unknown latency 'gamma:1:2': one of none, fedat"),
        ("fedat:1", "unknown latency 'fedat:1'"),
        ("trace:", "unknown latency 'trace:'"),
        ("uniform:5", "unknown latency 'uniform:5'"),
        ("uniform:a:b", "'uniform:a:b': a:b are not two numbers"),
        ("uniform:5:1", r"low <= high, got 5\.0 and 1\.0"),
        ("uniform:-1:1", r"got -1\.0"),
        ("uniform:0:inf", "got 0.0 and inf"),
        ("lognormal:0:1", r"median > 0, sigma in 0..10, got 0\.0"),
        ("lognormal:1:nan", "and nan"),
        ("lognormal:1:11", r"and 11\.0"),
        ("pareto:2:0", r"shape >= 0.1, got 2\.0 and 0\.0"),
    ],
)
def test_a_text_that_is_no_latency_is_named(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_latency(text, 10, 0)


@pytest.mark.parametrize(("num_clients", "compute_s"), [(0, 0.0), (5, -1.0), (5, math.inf)])
def test_clients_and_compute_time_must_make_sense(num_clients, compute_s):
    with pytest.raises(ConfigError, match=f"got {num_clients} and {compute_s}"):
        parse_latency("none", num_clients, 0, compute_s)


def test_every_form_begins_with_a_kind_that_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("0,1\n")
    numbers = {"LOW": "1", "HIGH": "2", "MEDIAN": "1", "SIGMA": "1", "MIN": "1", "SHAPE": "1"}
    for form in FORMS:
        words = [numbers.get(word, word) for word in form.split(":")]
        text = ":".join(words).replace("FILE", str(tmp_path / "t.csv"))
        assert parse_latency(text, 1, 0).sample(0, 0) >= 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "0,1.5\n1,2\n0,2.5\n"),
        ("t.csv", "client,latency\n0,1.5\n1,2\n0,2.5\n"),
        (
            "t.jsonl",
            "\n".join(json.dumps({"client": c, "latency": v}) for c, v in ((0, 1.5), (1, 2), (0, 2.5))),
        ),
    ],
)
def test_a_trace_is_played_in_order_and_again_from_the_start(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    model = parse_latency(f"trace:{tmp_path / name}", 2, 0)
    assert [model.sample(0, n) for n in range(4)] == [1.5, 2.5, 1.5, 2.5]
    assert model.sample(1, 7) == 2
    assert model == Trace({0: (1.5, 2.5), 1: (2.0,)})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("t.csv", "0,1\n1,2,3\n", "line 2: not 'client,latency'"),
        ("t.csv", "0,1\n\n", "line 2: not 'client,latency'"),
        ("t.csv", "0,1\nclient,latency\n", "line 2: 'client', 'latency' are not numbers"),
        ("t.csv", "0,fast\n", "line 1: '0', 'fast' are not numbers"),
        ("t.csv", "0.5,1\n", "line 1: '0.5', '1' are not numbers"),
        ("t.csv", "0,-1\n", "line 1: 0, -1.0 must be >= 0"),
        ("t.csv", "0,nan\n", "line 1: 0, nan must be >= 0"),
        ("t.csv", "-1,1\n", "line 1: -1, 1.0 must be >= 0"),
        ("t.csv", "0,1\n", "no latency for client 1 of 2"),
        ("t.csv", "", "no latency for client 0 of 2"),
        ("t.jsonl", '{"client": 0, "latency": 1}\n{"client": 1}', "line 2: not"),
        ("t.jsonl", "[0, 1]", "line 1: not"),
        ("t.jsonl", "{", "line 1: not"),
        ("t.jsonl", '{"client": null, "latency": 1}', "line 1: None, 1 are not numbers"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_trace(tmp_path / name, 2)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_trace_that_cannot_be_read_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ConfigError, match=r"t\.csv cannot be read"):
        read_trace(tmp_path / "t.csv", 2)


@given(num_unstable=st.integers(0, 30), seed=SEEDS)
def test_exactly_the_unstable_clients_drop_out_within_the_horizon(num_unstable, seed):
    times_s = [DropOuts(30, num_unstable, 500.0, seed).drop_time_s(client) for client in range(30)]
    assert sum(time < math.inf for time in times_s) == num_unstable
    assert all(0 <= time <= 500 or time == math.inf for time in times_s)


def test_drop_outs_are_others_for_another_seed_and_the_same_for_the_same():
    assert DropOuts(100, 10, 1.0, 0).unstable == DropOuts(100, 10, 1.0, 0).unstable
    assert DropOuts(100, 10, 1.0, 0).unstable != DropOuts(100, 10, 1.0, 1).unstable


def test_drop_outs_that_make_no_sense_are_named():
    with pytest.raises(ConfigError, match="11 of 10 clients"):
        DropOuts(10, 11, 1.0, 0)
    with pytest.raises(ConfigError, match=r"horizon .* got 0\.0"):
        DropOuts(10, 1, 0.0, 0)
