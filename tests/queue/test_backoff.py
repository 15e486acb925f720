import pytest

from koordsched.queue.backoff import BackoffPolicy, BackoffQueue
from koordsched.queue.item import QueuedPod
from tests.queue.pods import Pod, priority_sort


def failed(at: float, *, rejections: int = 0, errors: int = 0, name: str = "p", priority: int = 0) -> QueuedPod[Pod]:
    queued = QueuedPod(Pod(name, priority=priority), f"default/{name}", at, 1)
    queued.unschedulable_count, queued.consecutive_errors = rejections, errors
    return queued


@pytest.mark.parametrize(("count", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (5000, 10)])
def test_core_case_16_durations(count: int, seconds: float) -> None:
    assert BackoffPolicy().duration(count) == seconds


@pytest.mark.parametrize(
    ("failure", "now", "backing_off"),
    [(100.3, 100.3, True), (100.3, 101.9, True), (100.3, 102.0, False), (100.9, 101.9, True), (100.9, 101.999, True),
     (100.9, 102.0, False)],
)  # fmt: skip
def test_core_case_16_expiry_is_floored_to_the_second(failure: float, now: float, backing_off: bool) -> None:
    assert BackoffPolicy().is_backing_off(failed(failure, rejections=1), now) is backing_off


@pytest.mark.parametrize(
    ("initial", "maximum", "count", "seconds"),
    [
        (1, 10, 4, 8),
        (3, 10, 2, 6),
        (3, 10, 3, 10),
        (5, 5, 1, 5),
        (5, 5, 9, 5),
        (1, 3600, 12, 2048),
        (1, 3600, 13, 3600),
    ],
)
def test_durations_of_other_policies(initial: float, maximum: float, count: int, seconds: float) -> None:
    assert BackoffPolicy(initial, maximum).duration(count) == seconds


@pytest.mark.parametrize(
    ("rejections", "errors", "expiry"),
    [(0, 0, None), (3, 0, 104.0), (3, 1, 101.0), (1, 2, 102.0)],
)
def test_errors_in_a_row_count_before_rejections(rejections: int, errors: int, expiry: float | None) -> None:
    assert BackoffPolicy().expiry(failed(100.0, rejections=rejections, errors=errors)) == expiry


def test_maximum_zero_disables_backoff() -> None:
    queued = failed(100.0, rejections=4, errors=2)
    assert BackoffPolicy(1, 0).expiry(queued) is None
    assert not BackoffPolicy(1, 0).is_backing_off(queued, 100.0)


def test_the_smallest_maximum_is_waited_for() -> None:
    assert BackoffPolicy(1, 1).expiry(failed(100.0, rejections=4)) == 101.0


def test_pods_of_one_second_keep_the_order_of_the_active_queue() -> None:
    queue: BackoffQueue[Pod] = BackoffQueue(priority_sort)
    policy = BackoffPolicy()
    batch = [
        failed(100.1, rejections=1, name="low"),
        failed(100.8, rejections=1, name="high", priority=9),
        failed(99.9, rejections=1, name="earlier"),
        failed(99.0, errors=1, name="error", priority=99),
    ]
    for queued in batch:
        queued.backoff_expiry = policy.expiry(queued)
        queued.unschedulable_plugins = frozenset({"Fit"} if queued.unschedulable_count else ())
    queue.add_all(batch)
    assert queue.next_release == 101.0
    assert [queued.pod.name for queued in queue.pop_expired(100.99)] == []
    assert [queued.pod.name for queued in queue.pop_expired(101.0)] == ["earlier", "error"]
    assert queue.next_release == 102.0
    assert [queued.pod.name for queued in queue] == ["high", "low"]


def test_error_backoff_is_never_popped_early() -> None:
    queue: BackoffQueue[Pod] = BackoffQueue(priority_sort)
    queued = failed(100.0, errors=1)
    queued.backoff_expiry = 101.0
    queue.add_all([queued])
    assert len(queue) == 1
    assert not queue.poppable
    assert queue.pop_early() is None
