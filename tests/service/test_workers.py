"""Work is taken on up to a limit, and an item's error stays its own."""

import threading

import pytest

from core.errors import Overloaded, TextError
from service.workers import Budget, Workers


def test_results_come_in_the_order_of_the_tasks_with_errors_in_their_places() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise TextError("two")
        return 10 * number

    workers = Workers(3, 100)
    results = workers.map(work, range(5))
    workers.close()
    assert [result for result in results if isinstance(result, int)] == [0, 10, 30, 40]
    assert isinstance(results[2], TextError)


def test_a_full_queue_refuses_and_serves_again_once_it_has_room() -> None:
    workers, go, begun = Workers(1, 2), threading.Event(), threading.Event()

    def wait(_: int) -> bool:
        begun.set()
        return go.wait(10)

    first = threading.Thread(target=workers.map, args=(wait, [0, 1]))
    first.start()
    begun.wait(10)
    with pytest.raises(Overloaded, match="the limit is 2"):
        workers.map(wait, [2])
    go.set()
    first.join()
    assert workers.map(wait, [3]) == [True]
    workers.close()


def test_a_claim_above_the_limit_is_granted_when_nothing_else_is_taken() -> None:
    budget = Budget(2, "things")
    with budget.claim(5), pytest.raises(Overloaded), budget.claim(1):
        pass
    with budget.claim(1):
        pass


def test_a_task_may_count_for_several_units() -> None:
    workers, go, begun = Workers(1, 10), threading.Event(), threading.Event()

    def wait(_: int) -> bool:
        begun.set()
        return go.wait(10)

    first = threading.Thread(target=workers.map, args=(wait, [0], 8))
    first.start()
    begun.wait(10)
    with pytest.raises(Overloaded, match="the limit is 10"):
        workers.map(wait, [1], units=3)
    go.set()
    first.join()
    assert workers.map(wait, [2], units=3) == [True]
    workers.close()
