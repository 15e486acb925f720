from koordsched.cluster.events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, FORCE_ACTIVATE, NODE_ADD
from koordsched.queue.inflight import InFlight, InFlightPod
from koordsched.queue.item import QueuedPod
from tests.queue.pods import Pod


def start(in_flight: InFlight[Pod], name: str) -> InFlightPod[Pod]:
    pod = Pod(name)
    in_flight.start(QueuedPod(pod, pod.key, 0.0, 0))
    flight = in_flight.get(pod.uid)
    assert flight is not None
    return flight


def objects(in_flight: InFlight[Pod], flight: InFlightPod[Pod]) -> list[str] | None:
    events = in_flight.events_since(flight)
    return None if events is None else [recorded.new for recorded in events]


def test_each_pod_sees_what_happened_since_it_was_popped() -> None:
    in_flight: InFlight[Pod] = InFlight()
    in_flight.record(NODE_ADD, None, "nobody in flight")
    a = start(in_flight, "a")
    in_flight.record(NODE_ADD, None, "n1")
    b = start(in_flight, "b")
    in_flight.record(ASSIGNED_POD_ADD, None, "n2")
    c = start(in_flight, "c")
    assert [objects(in_flight, flight) for flight in (a, b, c)] == [["n1", "n2"], ["n2"], []]
    assert in_flight.event_counts() == {"NodeAdd": 1, "AssignedPodAdd": 1, "PodPopped": 3}


def test_events_are_pruned_up_to_the_oldest_pod_in_flight() -> None:
    in_flight: InFlight[Pod] = InFlight()
    a = start(in_flight, "a")
    in_flight.record(NODE_ADD, None, "n1")
    b = start(in_flight, "b")
    in_flight.record(NODE_ADD, None, "n2")
    start(in_flight, "c")
    in_flight.done("uid-default-b")
    assert objects(in_flight, a) == ["n1", "n2"]
    in_flight.done("uid-default-a")
    assert in_flight.event_counts() == {"PodPopped": 1}
    assert in_flight.done(b.queued.pod.uid) is None
    in_flight.record(NODE_ADD, None, "n3")
    in_flight.done("uid-default-c")
    assert in_flight.event_counts() == {"PodPopped": 0}


def test_own_events_concern_one_pod_and_go_with_it() -> None:
    in_flight: InFlight[Pod] = InFlight()
    a, b = start(in_flight, "a"), start(in_flight, "b")
    in_flight.record_own(b, FORCE_ACTIVATE, None, b.queued.pod)
    assert [recorded.event for recorded in b.own_events] == [FORCE_ACTIVATE]
    assert list(a.own_events) == []
    assert in_flight.event_counts() == {"ForceActivate": 1, "PodPopped": 2}
    in_flight.done("uid-default-b")
    assert in_flight.event_counts() == {"PodPopped": 1}


def test_the_record_is_bounded_and_pods_that_lost_events_are_told() -> None:
    in_flight: InFlight[Pod] = InFlight(max_events=3)
    a = start(in_flight, "a")
    in_flight.record(NODE_ADD, None, "n1")
    b = start(in_flight, "b")
    for number in (2, 3, 4):
        in_flight.record(ASSIGNED_POD_DELETE, None, f"n{number}")
    assert objects(in_flight, a) is None
    assert objects(in_flight, b) == ["n2", "n3", "n4"]
    assert in_flight.event_counts() == {"AssignedPodDelete": 3, "PodPopped": 2}
    in_flight.done("uid-default-a")
    assert objects(in_flight, b) == ["n2", "n3", "n4"]
    in_flight.done("uid-default-b")
    assert in_flight.event_counts() == {"PodPopped": 0}


def test_pods_done_out_of_order_keep_the_record_for_the_oldest() -> None:
    in_flight: InFlight[Pod] = InFlight()
    oldest = start(in_flight, "oldest")
    for number in range(100):
        in_flight.record(NODE_ADD, None, str(number))
        start(in_flight, f"p{number}")
        in_flight.done(f"uid-default-p{number}")
    assert objects(in_flight, oldest) == [str(number) for number in range(100)]
    in_flight.done("uid-default-oldest")
    assert len(in_flight) == 0
    assert in_flight.event_counts() == {"PodPopped": 0}
