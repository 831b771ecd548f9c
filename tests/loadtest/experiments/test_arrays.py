from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedat_service.wire.messages import ClientEvaluation
from fedat_service.wire.settings import Slot, Solver
from loadtest.experiments.arrays import ArrayDigests, digest, from_bytes, to_pieces
from workers.training.trainer import EvaluationResult, Kept, TrainResult

ARRAYS = st.one_of(
    arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0))
    for dtype in (np.float32, np.float64, np.int64)
)


def to_bytes(value):
    return b"".join(to_pieces(value))


def results():
    names = st.text(max_size=5)
    params = st.dictionaries(names, ARRAYS, max_size=3)
    nested = st.dictionaries(names, params, max_size=2)
    return st.builds(
        TrainResult,
        params=params,
        num_examples=st.integers(0, 10**6),
        metrics=st.dictionaries(names, st.floats(), max_size=2),
        slots=st.dictionaries(st.sampled_from(get_args(Slot)), params, max_size=2),
        kept=st.builds(Kept, round=nested, client=nested),
    )


@given(st.lists(results(), max_size=3))
def test_training_results_come_back_to_the_last_bit(trained):
    written = to_bytes(trained)
    back = from_bytes(written, list[TrainResult])
    assert to_bytes(back) == written
    for one, other in zip(back, trained, strict=True):
        for name, array in one.params.items():
            assert (array.dtype, array.shape) == (other.params[name].dtype, other.params[name].shape)
            assert array.tobytes() == other.params[name].tobytes()
            assert array.flags.writeable


def test_arrays_that_do_not_lie_in_one_piece_come_back():
    across = np.arange(20.0)[::2]
    back = from_bytes(to_bytes([TrainResult({"w": across}, 1, {})]), list[TrainResult])
    assert back[0].params["w"].tolist() == across.tolist()


def test_evaluations_come_back():
    one = EvaluationResult(num_examples=3, correct=2, loss=1 / 3)
    assert from_bytes(to_bytes(one), EvaluationResult) == one
    all_clients = [ClientEvaluation(client="c000", **asdict(one))]
    assert from_bytes(to_bytes(all_clients), Sequence[ClientEvaluation]) == all_clients


@given(st.lists(results(), max_size=2))
def test_equal_values_have_equal_digests_whether_or_not_they_share_arrays(trained):
    copied = from_bytes(to_bytes(trained), list[TrainResult])
    of_array = ArrayDigests()
    assert digest([trained, trained], of_array) == digest([trained, copied], of_array)


def test_whatever_differs_has_other_bytes_and_another_digest():
    start = {"w": np.zeros((2, 3), np.float32)}
    values = [
        *([start, Solver()], [start, Solver(lr=0.5)], [{"v": start["w"]}, Solver()]),
        *([{"w": start["w"].reshape(3, 2)}, Solver()], [{"w": start["w"].view(np.int32)}, Solver()]),
    ]
    assert len({to_bytes(value) for value in values}) == len(values)
    assert len({digest(value, ArrayDigests()) for value in values}) == len(values)


def test_an_array_is_read_once():
    of_array, array = ArrayDigests(), np.zeros(10)
    before = of_array(array)
    array[0] = 1  # which nobody does
    assert of_array(array) == before
    assert of_array(array.copy()) != before


def test_an_array_that_takes_the_place_of_another_in_memory_is_not_taken_for_it():
    of_array, found = ArrayDigests(), []
    for number in range(50):
        array = np.full(10, number)
        found += [of_array(array), of_array(array)]
        del array
    assert found[::2] == found[1::2]
    assert len(set(found)) == 50


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_a_part_is_refused(share):
    written = to_bytes([TrainResult({"w": np.ones(100)}, 1, {})])
    with pytest.raises(ValueError, match="not what was written"):
        from_bytes(written[: int(share * len(written))], list[TrainResult])


@given(st.data())
def test_whatever_was_changed_is_refused(data):
    written = to_bytes([TrainResult({"w": np.ones(3)}, 1, {})])
    at = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(1, 255)) ^ written[at]
    with pytest.raises(ValueError, match="not what was written"):
        from_bytes(written[:at] + bytes([other]) + written[at + 1 :], list[TrainResult])


def test_what_is_no_value_is_refused():
    with pytest.raises(TypeError, match="object"):
        to_bytes([object()])
