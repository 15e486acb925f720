"""What the scheduler and the controller write into the status of a Reservation (reservation spec 3.6, 3.8, 3.9)."""

import json
from datetime import datetime
from fractions import Fraction

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.cluster import allocated_to
from tests.plugins.reservation.naive.info import Info, quantities, text_of
from tests.reference.plugins.loadawarescheduling import duration
from tests.reference.podrequests import exact_requests


def available(thing, node):
    """The Reservation after it was bound to a node."""
    amounts = Info(thing).template_requests()
    allocatable = {name: text_of(amount) for name, amount in amounts.items()}
    resized = (thing["metadata"].get("annotations") or {}).get(names.RESIZE)
    if resized:
        allocatable |= json.loads(resized).get("resources") or {}
    conditions = [condition("Scheduled", "True", "Scheduled"), condition("Ready", "True", "Available")]
    status = {"phase": "Available", "nodeName": node, "allocatable": allocatable, "conditions": conditions}
    return {**thing, "status": {**(thing.get("status") or {}), **status}}


def synchronise(cluster):
    """All Reservations after the controller has looked at them; changes the cluster."""
    for name, thing in list(cluster.reservations.items()):
        cluster.put(synchronised(cluster, thing))
        assert name in cluster.reservations


def synchronised(cluster, thing):
    """One Reservation after the controller has looked at it."""
    info = Info(thing)
    if info.phase in ("Succeeded", "Failed"):
        return thing
    if expired(thing, cluster.now) or (info.node and info.node not in cluster.nodes):
        return ended(thing, "Failed", "Expired")
    if not info.node:
        return thing
    owners = [
        pod for pod in cluster.pods.values() if pod["spec"]["nodeName"] == info.node and allocated_to(pod) == info.uid
    ]
    owners.sort(key=lambda pod: pod["metadata"]["uid"])
    status = thing.get("status") or {}
    allocated = {}
    for owner in owners:
        for name, amount in exact_requests(owner).items():
            if name in (status.get("allocatable") or {}):
                allocated[name] = allocated.get(name, Fraction(0)) + amount
    listed = [
        {"namespace": each["metadata"].get("namespace", "default"), **{k: each["metadata"][k] for k in ("name", "uid")}}
        for each in owners
    ]
    amounts = {name: text_of(amount) for name, amount in allocated.items()}
    if listed == (status.get("currentOwners") or []) and quantities(amounts) == quantities(status.get("allocated")):
        return thing
    changed = {**thing, "status": {**status, "allocated": amounts, "currentOwners": listed}}
    return ended(changed, "Succeeded", "Succeeded") if info.once else changed


def expired(thing, now):
    """Whether its time is over. Seconds since the epoch."""
    spec = thing["spec"]
    ttl = None if spec.get("ttl") is None else duration(spec["ttl"])
    if ttl == 0:
        return False
    if spec.get("expires") and now > seconds(spec["expires"]):
        return True
    created = thing["metadata"].get("creationTimestamp")
    return ttl is not None and created is not None and now - seconds(created) > ttl


def ended(thing, phase, reason):
    """The Reservation in a final phase."""
    status = thing.get("status") or {}
    others = [each for each in status.get("conditions") or [] if each["type"] != "Ready"]
    conditions = [*others, condition("Ready", "False", reason)]
    return {**thing, "status": {**status, "phase": phase, "conditions": conditions}}


def condition(kind, status, reason):
    return {"type": kind, "status": status, "reason": reason}


def seconds(text):
    return datetime.fromisoformat(text).timestamp()
