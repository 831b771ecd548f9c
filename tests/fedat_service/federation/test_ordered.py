from hypothesis import given
from hypothesis import strategies as st

from fedat_service.federation.ordered import Ordered

ITEMS = st.lists(st.integers(0, 50), max_size=40)
MANY = [f"c{i:05d}" for i in range(3000)]


@given(ITEMS, st.lists(st.tuples(st.booleans(), ITEMS), max_size=6))
def test_it_is_the_sorted_set_of_what_was_put_in_and_not_taken_out(items, changes):
    ordered, expected = Ordered(items), set(items)
    for adds, changed in changes:
        before, frozen = ordered, list(ordered)
        ordered = ordered.with_items(changed) if adds else ordered.without(changed)
        expected = expected | set(changed) if adds else expected - set(changed)
        assert list(before) == frozen
        assert list(ordered) == sorted(expected)
        assert len(ordered) == len(expected)
        assert ordered.first == min(expected, default=None)
        assert [item in ordered for item in range(51)] == [item in expected for item in range(51)]
        assert ordered.at(range(len(expected))) == sorted(expected)


def test_one_by_one_in_any_order_or_at_once_is_the_same():
    grown = Ordered()
    for i in range(len(MANY)):
        grown = grown.with_items([MANY[i * 1789 % len(MANY)]])
    assert grown == Ordered(MANY) == Ordered().with_items(MANY)
    assert grown.at([0, 1500, 2999]) == [MANY[0], MANY[1500], MANY[2999]]


def test_a_change_leaves_most_of_it_as_it_was():
    one = Ordered(MANY)
    other = one.without([MANY[1234]]).with_items([MANY[1234]])
    old = {id(part) for part in one._parts}
    assert sum(id(part) not in old for part in other._parts) == 1
    assert max(len(part) for part in other._parts) < 256


def test_what_is_there_already_changes_nothing():
    one = Ordered(MANY)
    assert list(one.with_items([MANY[1234]])) == MANY


def test_what_differs_is_not_equal():
    assert Ordered([1, 2]) != Ordered([1, 3])
    assert Ordered([1, 2]) != Ordered([1])
    assert Ordered([1]) != [1]
    assert repr(Ordered([2, 1])) == "Ordered([1, 2])"
