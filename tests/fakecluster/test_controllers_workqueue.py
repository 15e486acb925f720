from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.registry import Registry
from tests.fakecluster.timeline import Timeline
from tests.virtualtime import WALL_EPOCH


class Recorder:
    def __init__(self, problems=(), writes=0):
        self.time = Timeline()
        self.registry = Registry(self.time, None, self.time.call_later)
        self.done = []
        self._problems = list(problems)
        self._writes = writes

    def __call__(self, key):
        self.done.append((round(self.time.now() - WALL_EPOCH, 6), key))
        if self._problems:
            raise self._problems.pop(0)
        return self._writes


def test_a_key_is_done_once_however_often_it_is_added():
    recorder = Recorder()
    queue = WorkQueue(recorder.registry, "test", recorder)
    for key in "abacab":
        queue.add(key)
    assert recorder.done == []
    recorder.time.run(0)
    assert recorder.done == [(0, "a"), (0, "b"), (0, "c")]


def test_the_earliest_time_counts():
    recorder = Recorder()
    queue = WorkQueue(recorder.registry, "test", recorder)
    queue.add("a", 10)
    queue.add("a", 5)
    queue.add("a", 20)
    queue.add("b", 3)
    recorder.time.run(4)
    queue.add("a", 0)
    recorder.time.run(100)
    assert recorder.done == [(3, "b"), (4, "a")]
    assert len(queue) == 0


def test_failures_are_tried_again_ever_later_without_holding_up_others():
    refusal = ApiStatusError(409, "Conflict", "stale")
    recorder = Recorder([refusal, ValueError("odd object"), refusal])
    queue = WorkQueue(recorder.registry, "test", recorder)
    queue.add("a")
    recorder.time.run(0.3)
    assert recorder.done == [(0, "a"), (0.05, "a"), (0.15, "a")]
    recorder.time.run(10)
    assert recorder.done[3:] == [(0.35, "a")]
    queue.add("a")
    recorder.time.run(1)
    assert len(recorder.done) == 5


def test_a_batch_ends_after_so_many_writes():
    recorder = Recorder(writes=4)
    queue = WorkQueue(recorder.registry, "test", recorder, batch=10)
    for key in range(6):
        queue.add(key)
    sizes = []
    while len(queue):
        before = len(recorder.done)
        recorder.time.step()
        sizes.append(len(recorder.done) - before)
    assert sizes == [2, 2, 2]


def test_a_closed_queue_does_nothing():
    recorder = Recorder()
    queue = WorkQueue(recorder.registry, "test", recorder)
    queue.add("a")
    queue.add("b", 5)
    queue.close()
    queue.add("c")
    recorder.time.run(10)
    assert recorder.done == []


def test_timers_keep_to_their_times_and_order():
    recorder = Recorder()
    timers = BatchedTimers(recorder.registry, tick=0.5)
    for delay in (30, 1, 2, 2.3, 0):
        timers.after(delay, recorder, delay)
    recorder.time.run(60)
    assert [key for _, key in recorder.done] == [0, 1, 2, 2.3, 30]
    assert all(key <= when <= key + 0.5 for when, key in recorder.done)


def test_many_timers_due_at_once_run_in_batches_and_survive_faults():
    recorder = Recorder([ValueError("odd"), ApiStatusError(404, "NotFound", "gone")])
    timers = BatchedTimers(recorder.registry)
    for number in range(500):
        timers.after(1.0, recorder, number)
    sizes = []
    while len(timers):
        before = len(recorder.done)
        recorder.time.step()
        sizes.append(len(recorder.done) - before)
    assert [key for _, key in recorder.done] == list(range(500))
    assert max(sizes) == 128
