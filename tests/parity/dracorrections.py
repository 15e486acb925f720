"""What upstream does wrong in records about devices, and what is right instead."""

import copy
from dataclasses import dataclass, field

DRIVER = "dra.lab.test"
NO_SOLUTION = (
    "0/{0} nodes are available: {0} cannot allocate all claims. still not schedulable, "
    "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."
)


@dataclass
class Correction:
    """`pods`: by name, the node that is right, or the message of a pod without one; `claims`: by name, what is right:
    (request, pool, device) of each result, or none. `stamped`: whether the allocation is ours, and so has a time.
    """

    why: str
    pods: dict
    claims: dict
    stamped: bool = True
    messages: dict = field(default_factory=dict)


_LISTS = "B11: constraints compare lists as sets, where upstream's never hold"
_COUNTED = "L2: what cannot be is found by counting, where upstream searches until the time is over"
_ALL_DIFFER = "B3: all devices of a request differ, where upstream compares with the latest one"

CORRECTIONS = {
    "d-allocated-without-timestamp": Correction(
        "an allocation that there is already is left as it is",
        {"p1": "birch"},
        {"g1": [("r0", "birch", "gpu-1")]},
        stamped=False,
    ),
    "d-shared-same-twice": Correction(
        "a claim that a pod names twice is allocated once", {"p1": "alder"}, {"g1": [("r0", "alder", "gpu-0")]}
    ),
    "d-claim-32-one-request": Correction(
        _COUNTED, {"p1": "birch"}, {"g1": [("a", "birch", f"gpu-{n}") for n in range(32)]}
    ),
    "d-filter-timeout": Correction(
        _COUNTED,
        {"p1": "birch"},
        {"g1": [("a" if n < 20 else "b", "birch", f"gpu-{n}") for n in range(32)]},
    ),
    "d-distinct-types": Correction(
        _ALL_DIFFER, {"p1": "cedar"}, {"g1": [("r0", "cedar", f"d-{n}") for n in (0, 1, 3)]}
    ),
    "d-distinct-within-request": Correction(
        _ALL_DIFFER, {"p1": None}, {"g1": []}, messages={"p1": NO_SOLUTION.format(1)}
    ),
    "d-random-14": Correction(
        f"{_ALL_DIFFER}: six devices would need six generations, and there are four",
        {"p3": None},
        {"g3": []},
        messages={"p3": NO_SOLUTION.format(5)},
    ),
    "d-list-attributes": Correction(
        _LISTS,
        {"p1": "alder", "p2": "alder"},
        {
            "g1": [("r0", "alder", "gpu-0"), ("r0", "alder", "nic-0")],
            "g2": [("r0", "alder", "gpu-1"), ("r0", "alder", "nic-1")],
        },
    ),
    "d-list-match": Correction(_LISTS, {"p1": "cedar"}, {"g1": [("r0", "cedar", "d-0"), ("r0", "cedar", "d-2")]}),
    "d-list-match-single": Correction(
        _LISTS, {"p1": "cedar"}, {"g1": [("r0", "cedar", "d-0"), ("r0", "cedar", "d-2")]}
    ),
}


EVALUATIONS = {
    "d-distinct-attribute": {"default/p1": {"alder": None}},  # three devices there have two values
    "d-random-14": {  # p3 is not there
        "default/p4": {
            "doum": {
                "DynamicResources": 0,
                "ImageLocality": 0,
                "NodeResourcesBalancedAllocation": 73,
                "NodeResourcesFit": 35,
                "TaintToleration": 300,
            }
        }
    },
}
"""Record -> pod -> node -> its scores, None if it is not feasible, where `_ALL_DIFFER` shows in these alone."""


def evaluated(record):
    """The record with what is right about nodes that are not chosen."""
    record = copy.deepcopy(record)
    for key, nodes in EVALUATIONS.get(record["name"], {}).items():
        expected = record["expected"][key]
        for node, scores in nodes.items():
            expected["feasible"] = [each for each in expected["feasible"] if each != node] + ([node] if scores else [])
            expected["totals"].pop(node, None)
            for by_node in expected["scores"].values():
                by_node.pop(node, None)
            if scores:
                expected["totals"][node] = sum(scores.values())
                for plugin, score in scores.items():
                    expected["scores"][plugin][node] = score
        if len(expected["feasible"]) == 1:
            expected["scores"] = expected["totals"] = None
    return record


def corrected(record):
    """The record with what is right."""
    record = evaluated(record)
    correction = CORRECTIONS.get(record["name"])
    if correction is None:
        return record
    expected = copy.deepcopy(record["expected"])
    for name, node in correction.pods.items():
        key = f"default/{name}"
        message = correction.messages.get(name)
        condition = {"reason": "Unschedulable", "message": message} if node is None else None
        nodes = [node] if node else []
        expected[key] |= {"bound": node, "anyOf": nodes, "feasible": nodes, "scores": None, "totals": None}
        expected[key] |= {"condition": condition, "nominatedNode": None}
        expected["events"] = [event for event in expected["events"] if event["regarding"] != key]
        expected["events"].append(_event(key, node, message))
    claims = {claim["metadata"]["name"]: claim for claim in expected["objects"]}
    for (name, results), pod in zip(correction.claims.items(), correction.pods, strict=True):
        _allocate(claims[name], results, pod, correction)
    return {**record, "expected": expected}


def _event(key, node, message):
    kind, reason, action = ("Normal", "Scheduled", "Binding") if node else ("Warning", "FailedScheduling", "Scheduling")
    note = f"Successfully assigned {key} to {node}" if node else message
    return {
        "type": kind,
        "reason": reason,
        "action": action,
        "note": note,
        "regarding": key,
        "reportingController": "default-scheduler",
    }


def _allocate(claim, results, pod, correction):
    meta = claim["metadata"]
    meta.pop("finalizers", None)
    claim["status"] = {}
    if not results:
        return
    meta["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    devices = [{"request": r, "driver": DRIVER, "pool": pool, "device": device} for r, pool, device in results]
    named = {"key": "metadata.name", "operator": "In", "values": [correction.pods[pod]]}
    allocation = {
        "devices": {"results": devices},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named]}]},
    }
    if correction.stamped:
        allocation["allocationTimestamp"] = "<time>"
    user = {"resource": "pods", "name": pod, "uid": f"<uid of default/{pod}>"}
    claim["status"] = {"allocation": allocation, "reservedFor": [user]}
