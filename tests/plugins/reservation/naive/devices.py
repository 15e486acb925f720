"""GPUs that Reservations hold (deviceshare spec 4.1), without topology: shares of one GPU, or whole ones.

A GPU has 100. A pod asks for as much of one, or for whole ones.
"""

import json
from collections import Counter
from fractions import Fraction

from tests.plugins.reservation.naive import names
from tests.reference.podrequests import exact_requests
from tests.reference.status import SKIP, unschedulable

NONE_LEFT = "Insufficient gpu devices"


def wanted(pod):
    """(how many GPUs, how much of each), None if the pod asks for none."""
    amount = exact_requests(pod).get(names.GPU_RATIO, Fraction(0))
    if not amount:
        return None
    return (int(amount) // 100, 100) if amount > 100 else (1, int(amount))


def held(thing):
    """{minor: amount} by the annotation of a pod or Reservation."""
    text = (thing["metadata"].get("annotations") or {}).get(names.DEVICE_ALLOCATED)
    listed = json.loads(text).get("gpu") or [] if text else []
    return {each["minor"]: int(each["resources"][names.GPU_RATIO]) for each in listed}


def left(info):
    """{minor: what owners do not use} of a Reservation."""
    rest = held(info.thing)
    for owner in info.owners:
        for minor, amount in held(owner).items():
            if minor in rest:
                rest[minor] = max(0, rest[minor] - amount)
    return rest


def free(cluster, node, given_back=()):
    """{minor: what is left} on a node, if these Reservations held nothing."""
    found = Counter()
    (device,) = [each for each in cluster.others if each["kind"] == "Device" and each["metadata"]["name"] == node]
    found.update({each["minor"]: 100 for each in device["spec"]["devices"]})
    for pod in cluster.pods.values():
        if pod["spec"]["nodeName"] == node:
            found.subtract(held(pod))
    for info in cluster.infos(node):
        if info.name not in given_back:
            found.subtract(left(info))
    return dict(found)


def of_reservation(cluster, node, info):
    """{minor: amount} that a pod may have that uses the Reservation."""
    with_it = free(cluster, node, [info.name])
    if info.policy != names.RESTRICTED:
        return with_it
    return {minor: min(with_it[minor], amount) for minor, amount in left(info).items()}


def fits(want, amounts):
    count, each = want
    return sum(amount >= each for amount in amounts.values()) >= count


def may_have(decision, node, info):
    """{minor: amount} that the pod may have if it uses the Reservation, or, for None, if it uses none.

    One that holds no GPUs leaves that to the node. Upstream gives a pod what Reservations hold that it does not use.
    """
    if info is not None and held(info.thing):
        return of_reservation(decision.cluster, node, info)
    ignores = not decision.is_reserve and decision.wish.ignores
    given_back = [each.name for each in decision.state(node).matched] if ignores else []
    return free(decision.cluster, node, given_back)


def suits(decision, node, info=None):
    """Whether the pod could have its GPUs if it used the Reservation, or none."""
    want = wanted(decision.pod)
    return want is None or fits(want, may_have(decision, node, info))


class DeviceShare:
    """Refuses where no Reservation is concerned; Reservation looks at the GPUs of those that are."""

    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        return None if wanted(pod) else SKIP

    def filter(self, pod, node, world):
        decision, name = world.origin.decision, node["metadata"]["name"]
        ignores = not decision.is_reserve and decision.wish.ignores
        if decision.state(name).matched and not ignores:
            return None
        return None if suits(decision, name) else unschedulable(NONE_LEFT)
