"""The objects as they are now, and how nodes read with the reserve pods on them (reservation spec 3.4)."""

import json

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.info import Info
from tests.reference.podrequests import nonzero_requests
from tests.reference.world import World

ENDED = ("Succeeded", "Failed")


class Cluster:
    """Nodes, pods on nodes and Reservations by name, as JSON; `now` in seconds since the epoch."""

    def __init__(self, *things, now=0.0):
        self.others, self.pods, self.reservations, self.now = [], {}, {}, now
        self.spent = set()
        """Names of Reservations that are consumed, whatever owners they have."""
        for thing in things:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed; a pod that waits for a node is no part of it."""
        if thing["kind"] == "Reservation":
            self.reservations[thing["metadata"]["name"]] = thing
        elif thing["kind"] == "Pod":
            ended = (thing.get("status") or {}).get("phase") in ENDED
            self.pods.pop(key_of(thing), None)
            if thing["spec"].get("nodeName") and not ended:
                self.pods[key_of(thing)] = thing
        else:
            self.remove(thing)
            self.others.append(thing)

    def remove(self, thing):
        """An object is gone."""
        if thing["kind"] == "Reservation":
            self.reservations.pop(thing["metadata"]["name"], None)
        elif thing["kind"] == "Pod":
            self.pods.pop(key_of(thing), None)
        else:
            self.others = [each for each in self.others if not same(each, thing)]

    @property
    def nodes(self):
        return {each["metadata"]["name"]: each for each in self.others if each["kind"] == "Node"}

    def owners(self, reservation):
        """The pods that use a Reservation, on its node."""
        node = (reservation.get("status") or {}).get("nodeName")
        return [
            pod
            for pod in self.pods.values()
            if allocated_to(pod) == reservation["metadata"]["uid"] and pod["spec"]["nodeName"] == node
        ]

    def info(self, name):
        return Info(self.reservations[name], self.owners(self.reservations[name]), name in self.spent)

    def infos(self, node=None):
        """All Reservations that hold room on the node, or on any."""
        found = [self.info(name) for name in self.reservations]
        return [info for info in found if info.valid and info.available and node in (None, info.node)]

    def without(self, pods):
        """A copy in which these pods are gone; a Reservation that one of them consumed stays consumed."""
        copy = Cluster(now=self.now)
        copy.others, copy.reservations = self.others, self.reservations
        gone = [key_of(pod) for pod in pods]
        copy.pods = {key: pod for key, pod in self.pods.items() if key not in gone}
        copy.spent = {info.name for info in self.infos() if info.once and info.owners}
        return copy

    def view(self, away=(), without=()):
        """The world in which these Reservations hold nothing, and those pods are on no node."""
        view = View(self.others)
        for info in self.infos():
            if info.name not in away:
                view.add_reserve_pod(info)
        gone = [key_of(pod) for pod in without]
        for key, pod in self.pods.items():
            if key not in gone:
                view.add(pod)
        if gone:
            view.measured = self.view(away)
        return view


class View(World):
    """A world with reserve pods, which count what they still hold."""

    def __init__(self, objects=()):
        super().__init__(objects)
        self.holding = {}
        """By uid of a reserve pod, its Reservation."""
        self.measured = self
        """The world that reports on load are about."""

    def add_reserve_pod(self, info):
        """The Reservation holds what its owners do not use."""
        self.add(info.reserve_pod(info.held()))
        self.holding[info.uid] = info

    def requested_nonzero(self, node, resource):
        pods, holding = self.pods_on(node), self.origin.holding
        infos = [holding[pod["metadata"]["uid"]] for pod in pods if pod["metadata"]["uid"] in holding]
        others = [pod for pod in pods if pod["metadata"]["uid"] not in holding]
        counted = sum(info.counted(resource) for info in infos)
        return counted + sum(nonzero_requests(pod).get(resource, 0) for pod in others)


def allocated_to(pod):
    """The uid of the Reservation that a pod uses, None if it uses none."""
    text = (pod["metadata"].get("annotations") or {}).get(names.ALLOCATED)
    try:
        return json.loads(text).get("uid") if text else None
    except (ValueError, AttributeError):
        return None


def key_of(pod):
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def same(one, other):
    def identity(thing):
        return thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"]

    return identity(one) == identity(other)
