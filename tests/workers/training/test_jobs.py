"""What is due first is done first, wherever work is done."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import count

import pytest

from workers.training.jobs import DueFirst, InlineExecutor


class Stopped(Executor):
    """Does nothing until it is told to."""

    def __init__(self):
        self.given = []

    def submit(self, fn, /, *args, **kwargs):
        self.given.append(fn)
        return Future()

    def go(self):
        for fn in self.given:
            fn()


def test_work_is_done_in_the_order_in_which_it_is_due():
    executor, done = Stopped(), []
    queue = DueFirst(executor)
    for due_s in (30.0, 5.0, 20.0, float("-inf"), float("inf")):
        queue.submit(due_s, done.append, due_s)
    executor.go()
    assert done == sorted(done) == [float("-inf"), 5.0, 20.0, 30.0, float("inf")]


def test_work_that_is_due_together_is_done_in_the_order_it_came():
    executor, done = Stopped(), []
    queue = DueFirst(executor)
    for n in range(9):
        queue.submit(1.0, done.append, n)
    executor.go()
    assert done == list(range(9))


def test_cancelled_work_is_not_done_and_what_is_left_is():
    executor, done = Stopped(), []
    queue = DueFirst(executor)
    first, second = (queue.submit(due_s, done.append, due_s) for due_s in (1.0, 2.0))
    assert first.cancel()
    executor.go()
    assert done == [2.0]
    assert second.done()


def test_what_work_raises_is_its_futures_alone():
    queue = DueFirst(InlineExecutor())
    with pytest.raises(ZeroDivisionError):
        queue.submit(0.0, lambda: 1 / 0).result()
    assert queue.submit(0.0, pow, 2, 3).result() == 8


def test_each_piece_of_work_is_done_once_by_many_threads():
    numbers = count()
    with ThreadPoolExecutor(4) as executor:
        queue = DueFirst(executor)
        futures = [queue.submit(float(n % 7), next, numbers) for n in range(500)]
    assert sorted(future.result() for future in futures) == list(range(500))


def test_an_inline_executor_has_the_result_or_the_error_at_once():
    executor = InlineExecutor()
    assert executor.submit(divmod, 7, 2).result(0) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(0)
