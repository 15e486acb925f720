"""The recorded decisions of koord-scheduler about Reservations, replayed over the API.

Compared are the verdicts and scores of every plugin of ours, what is written to pods and Reservations, messages,
Events, and the books. Our scheduler places every pod and every Reservation itself.
"""

import asyncio
import json

import pytest

from koordsched.api.quantity import parse
from koordsched.plugins import CONTROLLERS, reservation
from tests.parity.koord import API_VERSIONS, SETTLE, load, names
from tests.parity.koordplay import PREEMPTION, PlacingPlay
from tests.virtualtime import run

PAGE = "/apis/v1/plugins/Reservation/nodeReservations/{nodeName}"
AMOUNTS = ("allocatable", "allocated", "reserved", "Requests", "resources")
"""Keys of dicts of quantities."""
TIMES = ("lastProbeTime", "lastTransitionTime")
"""Of conditions; it is compared that they are there."""
UIDS = ("uid", "UID")
"""Left out of the recorded books."""

WOKEN = {"resv-15-ttl": "x0", "resv-16-ttl-owner": "x0"}
"""Record -> pod that fits on elk once a Reservation has expired. The reference leaves it waiting, we wake it."""
PORTS = {"resv-55-host-port-outsider": 8088}
"""Record -> host port of a Reservation and of its owner. With one, the reference cannot write its books as JSON."""


class Play(PlacingPlay):
    """A record about Reservations."""

    controllers = {"Reservation": CONTROLLERS["Reservation"]}

    def __init__(self, record):
        super().__init__(record)
        self.name = record["name"]

    @property
    def victims(self):
        events = self.record["expected"]["events"]
        return [event["regarding"].removeprefix("Pod/") for event in events if event["reason"] == "Preempted"]

    @staticmethod
    def waits(thing):
        return PlacingPlay.waits(thing) or (thing["kind"] == "Reservation" and "status" not in thing)

    def is_first(self, thing):
        return self.record.get("prestart") or (thing["kind"] != "Pod" and not self.waits(thing))

    async def decide(self, thing):
        if thing["kind"] != "Pod" or not self.waits(thing):
            self.embedded.insert(thing)
            await asyncio.sleep(1)
            return
        name, expected = thing["metadata"]["name"], self.expected(thing)
        if not expected.get("deleted"):
            self.compare_attempt(name, self.said(thing), expected)
        await self.put(thing)
        if expected.get("condition"):
            self.compare_condition(name, self.embedded.get("Pod", name), expected)
            self.compare_failures(name, expected)

    def compare_attempt(self, name, said, expected):
        """What is said of the pod, unless it was refused at first in the record and admitted by a step."""
        feasible = [node.name for node in said.nodes if node.feasible]
        failed = {event for event in self.recorded_events() if event[:2] == (f"Pod/{name}", "FailedScheduling")}
        if expected["bound"] and failed and not feasible and not self.victims:
            return
        self.compare_said(name, said, expected)
        if expected["feasible"] is not None and not self.victims and feasible != expected["feasible"]:
            self.differences.append(f"{name}: feasible are {feasible}, recorded {expected['feasible']}")

    def compare_failures(self, name, expected):
        """The Events of the pod's first attempt: one with the condition's message, the other if there is one at all."""
        ours = {event for event in self.events() if event[0] == f"Pod/{name}"}
        recorded = {event for event in self.recorded_events() if event[0] == f"Pod/{name}"}
        first = (f"Pod/{name}", "FailedScheduling", expected["condition"]["message"])
        reasons = {reason for _, reason, _ in recorded if reason.startswith("FailedScheduling")}
        if first not in ours or not ours <= recorded or {reason for _, reason, _ in ours} != reasons:
            self.differences.append(f"{name}: at first the events are {sorted(ours)}, recorded {sorted(recorded)}")

    async def end(self):
        await asyncio.sleep(SETTLE)
        self.compare_end()

    def compare_end(self):
        if self.record.get("prestart"):
            self.compare_unplaced()
        for key, expected in self.record["expected"].items():
            if "/" in key:
                self.compare_pod(key.partition("/")[2], expected)
        for recorded in self.record["expected"]["objects"]:
            self.compare_object(recorded)
        self.compare_events()
        for node, recorded in self.record["expected"]["debug"].items():
            self.compare_books(node, recorded)

    def compare_unplaced(self):
        """What is said of pods without a node that existed before the scheduler. Their state has not changed since."""
        for thing in self.record["objects"]:
            if thing["kind"] == "Pod" and self.waits(thing) and self.expected(thing)["condition"]:
                name, expected = thing["metadata"]["name"], self.expected(thing)
                self.compare_said(name, self.said(self.dated(thing)), expected)
                self.compare_condition(name, self.embedded.get("Pod", name), expected)

    def compare_pod(self, name, expected):
        """Where the pod ended, and what was written on it."""
        pod = self.embedded.get("Pod", name)
        if expected.get("deleted") or pod is None:
            if bool(expected.get("deleted")) != (pod is None):
                self.differences.append(f"{name} is {'' if pod is None else 'not '}gone")
            return
        wanted = "elk" if WOKEN.get(self.name) == name else expected["bound"]
        if pod["spec"].get("nodeName") != wanted:
            self.differences.append(f"{name}: bound to {pod['spec'].get('nodeName')}, expected {wanted}")
        nominated = pod.get("status", {}).get("nominatedNodeName")
        if nominated != expected["nominatedNode"]:
            self.differences.append(f"{name}: nominated to {nominated}, recorded {expected['nominatedNode']}")
        for what in ("annotations", "labels"):
            given = self.given(name, what)
            written = {key: text for key, text in pod["metadata"].get(what, {}).items() if given.get(key) != text}
            if parsed(written) != parsed(expected[what]):
                self.differences.append(f"{name}: {what} {written} are written, recorded {expected[what]}")

    def compare_object(self, recorded):
        kind, name = recorded["kind"], recorded["name"]
        ours = self.embedded.get(kind, name, api_version=API_VERSIONS.get(kind, "v1"))
        if recorded.get("gone") or ours is None:
            if bool(recorded.get("gone")) != (ours is None):
                self.differences.append(f"{kind} {name} is {'' if ours is None else 'not '}gone")
            return
        for what in ("annotations", "labels"):
            if what in recorded and parsed(ours["metadata"].get(what, {})) != parsed(recorded[what]):
                found = ours["metadata"].get(what, {})
                self.differences.append(f"{kind} {name}: {what} are {found}, recorded {recorded[what]}")
        if "status" in recorded:
            status, wanted = settled(ours.get("status", {})), settled(recorded["status"], timed=False)
            for key in sorted({*status, *wanted}):
                if by_value(status.get(key), key) != by_value(wanted.get(key), key):
                    self.differences.append(f"{name}: {key} is {status.get(key)}, recorded {wanted.get(key)}")

    def compare_events(self):
        """All Events, but not those of later attempts that the record calls informative: we may not need them."""
        informative = {
            f"Pod/{key.partition('/')[2]}"
            for key, expected in self.record["expected"].items()
            if "/" in key and expected.get("conditionAtEnd")
        }
        ours, recorded = self.events(), self.recorded_events()
        if name := WOKEN.get(self.name):
            recorded.add((f"Pod/{name}", "Scheduled", f"Successfully assigned default/{name} to elk"))
        missing = {
            event
            for event in recorded - ours
            if not (event[0] in informative and event[1].startswith("FailedScheduling"))
        }
        for event in sorted(filter(self.is_compared, missing)):
            self.differences.append(f"there is no event {event}")
        for event in sorted(filter(self.is_compared, ours - recorded)):
            self.differences.append(f"event {event} is not recorded")

    def is_compared(self, event):
        """Whether it matters if there is this Event."""
        return True

    def events(self):
        """Object, reason and note of all Events; notes about Reservations up to what preemption adds."""
        events = self.embedded.events()
        return {_event(f"{event['regarding']['kind']}/{event['regarding']['name']}", event) for event in events}

    def recorded_events(self):
        """Those of the record."""
        return {_event(event["regarding"], event) for event in self.record["expected"]["events"]}

    def compare_books(self, node, recorded):
        ours = self.answered(reservation.DECLARATION, node)
        if self.name in PORTS:
            assert recorded == ""
            self.compare_ports(ours, str(PORTS[self.name]))
            return
        books = [book(item) for item in ours.get("items", ())]
        if books != [book(item) for item in recorded["items"]]:
            self.differences.append(f"debug of {node}: {ours}, recorded {recorded}")

    def compare_ports(self, ours, port):
        """The port is in the books of the only Reservation, as its own and as its owner's."""
        item = next(iter(ours.get("items", ())), {})
        owner = next(iter(item.get("assignedPods", ())), {})
        ports = [item.get("allocatablePorts"), item.get("allocatedPorts"), owner.get("Ports")]
        if not all(port in json.dumps(each) for each in ports):
            self.differences.append(f"debug: the ports are {ports}")


class RestartingPlay(Play):
    """The same with a new scheduler for each thing that waits. It tries all pods again, and says so in more Events."""

    async def decide(self, thing):
        if self.waits(thing):
            await self.restart()
        await super().decide(thing)

    def compare_failures(self, name, expected):
        pass

    def is_compared(self, event):
        return not event[1].startswith("FailedScheduling")


def _event(about, event):
    note = event["note"]
    return about, event["reason"], without_preemption(note) if about.startswith("Reservation/") else note


def without_preemption(message):
    """A message about a Reservation up to what preemption adds: upstream finds no pod that it could preempt for."""
    return message.partition(PREEMPTION)[0]


def settled(status, timed=True):
    """A Reservation's status to be compared: conditions without times, which have to be there if `timed`."""
    conditions = []
    for condition in status.get("conditions", ()):
        assert not timed or all(condition.get(key) for key in TIMES), condition
        kept = {key: text for key, text in condition.items() if key not in TIMES}
        if "message" in kept:
            kept["message"] = without_preemption(kept["message"])
        conditions.append(kept)
    return {**status, "conditions": conditions}


def parsed(texts):
    """Labels or annotations: what is JSON as values, quantities by value."""
    found = {}
    for key, text in texts.items():
        try:
            found[key] = by_value(json.loads(text))
        except ValueError:
            found[key] = text
    return found


def by_value(thing, key=""):
    """A JSON value with its quantities by value."""
    if isinstance(thing, list):
        return [by_value(entry) for entry in thing]
    if not isinstance(thing, dict):
        return thing
    if key in AMOUNTS:
        return {name: parse(amount) for name, amount in thing.items()}
    return {name: by_value(entry, name) for name, entry in thing.items()}


def book(item):
    """A Reservation in the books, without uids, owners by name."""
    found = {key: entry for key, entry in by_value(item).items() if key not in UIDS}
    if owners := found.get("assignedPods"):
        kept = [{key: entry for key, entry in owner.items() if key not in UIDS} for owner in owners]
        found["assignedPods"] = sorted(kept, key=lambda owner: owner["Name"])
    return found


def differences(record, play=Play):
    """What differs from a record."""

    async def main():
        return await play(record).play()

    return "\n".join(run(main()))


@pytest.mark.parametrize("name", names("resv-"))
def test_decisions_about_reservations(name):
    found = differences(load(name))
    assert not found, found


@pytest.mark.parametrize("name", [name for name in names("resv-") if "prestart" not in load(name)])
def test_a_scheduler_that_starts_anew_decides_the_same(name):
    found = differences(load(name), RestartingPlay)
    assert not found, found


def test_owners_are_found_again_without_another_event():
    """The reference needs an update of the pod, which the record makes."""
    record = load("resv-31-restart")
    record["steps"] = [step for step in record["steps"] if "patch" not in step]
    record["expected"]["default/w0"]["labels"] = {}
    found = differences(record)
    assert not found, found


def test_the_books_are_where_the_reference_has_them():
    assert PAGE in [page.path for page in reservation.DECLARATION.pages]
