"""Reservations as objects of the API say them: what each keeps, and the pods that act as some."""

import json

from tests.plugins.reservation.naive.cluster import allocated_to
from tests.plugins.reservation.naive.controller import expired
from tests.plugins.reservation.naive.info import Info, text_of
from tests.reference.podrequests import exact_requests
from tests.simulation.reservationusers import KIND, OWNERS, is_operating

CAUTION = 20.0
"""Seconds that may pass until the end of a Reservation is written."""
STIR = 15.0
"""Seconds before and after the end of a Reservation in which nothing is said about the state at rest: its end wakes
pods, and is cleared away after a while."""


def as_reservation(pod):
    """The Reservation that a running pod is by its operating mode, None if it is none."""
    if not is_operating(pod) or not pod["spec"].get("nodeName"):
        return None
    status, meta = pod.get("status") or {}, pod["metadata"]
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    if status.get("phase") != "Running" or not ready:
        return None
    try:
        owners = json.loads((meta.get("annotations") or {}).get(OWNERS, ""))
    except ValueError:
        owners = []  # without any it is one all the same
    shown = {key: meta[key] for key in ("name", "uid", "labels", "annotations", "creationTimestamp") if key in meta}
    if "deletionTimestamp" in meta:
        shown["deletionTimestamp"] = meta["deletionTimestamp"]
    template = {
        "metadata": {"labels": meta.get("labels") or {}, "namespace": meta["namespace"]},
        "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"},
    }
    held = {name: text_of(amount) for name, amount in exact_requests(pod).items()}
    return {
        "kind": KIND,
        "acts": True,
        "metadata": shown,
        "spec": {
            "template": template,
            "owners": owners,
            "ttl": "0s",
            "allocateOnce": True,
            "allocatePolicy": "Aligned",
        },
        "status": {"phase": "Available", "nodeName": pod["spec"]["nodeName"], "allocatable": held},
    }


def info_of(thing, users):
    """The naive view of a Reservation. `users`: pods that may say that they use it."""
    node, uid = (thing.get("status") or {}).get("nodeName"), thing["metadata"]["uid"]
    return Info(thing, [pod for pod in users if allocated_to(pod) == uid and pod["spec"].get("nodeName") == node])


def is_due(thing, now):
    """Whether a Reservation should have been ended some time ago; `now`: seconds since the epoch."""
    return expired(thing, now - CAUTION)


def is_ending(thing, now):
    """Whether the time of a Reservation has just ended, or is about to; `now`: seconds since the epoch."""
    return expired(thing, now + STIR) and not expired(thing, now - STIR)
