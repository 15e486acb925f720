"""What the recorded scheduler did wrong about quotas, and what is right; Events that are otherwise, and why."""

import json

from tests.parity.koord import KoordReplay


def both(cpu, memory):
    """cpu and memory, as recorded."""
    return {"cpu": cpu, "memory": memory}


def counted(amounts, used):
    """A quota whose own pods request and use these amounts."""
    return {"request": amounts, "childRequest": amounts, "selfRequest": amounts, "used": used, "selfUsed": used}


def pods(**assigned):
    """Pods of the namespace `works`, by their names with `_` for `-`."""
    return {f"works/{name.replace('_', '-')}": {"isAssigned": there} for name, there in assigned.items()}


TWENTY = both("20", "20Gi")
IN_P = {"request": TWENTY, "childRequest": TWENTY, "runtime": TWENTY}
DEFAULT = "koordinator-default-quota"
TOP_REFUSED = (
    "0/1 nodes are available: Insufficient quotas, quotaName: a, runtime: cpu:{runtime},memory:3Gi, used: "
    "cpu:8,memory:2Gi, pod's request: cpu:4,memory:1Gi, exceedDimensions: [cpu]. preemption: "
)

RIGHT = {
    # A quota that goes takes along what its parent saw of it, no more; its pods are counted in the default quota.
    "quota-delete-leaf": {
        "numbers": {
            "x gone": {
                DEFAULT: {**counted(both("30", "30Gi"), both("2", "2Gi")), "podCache": pods(x_0=True, x_1=False)},
                "p": IN_P,
            },
            KoordReplay.END: {
                DEFAULT: {**counted(both("30", "30Gi"), both("2", "2Gi")), "podCache": pods(x_0=True, x_1=False)},
                "p": IN_P,
                "y": {"runtime": TWENTY},
            },
        },
        "root": {
            checkpoint: {"request": both("50", "50Gi"), "used": both("22", "22Gi")}
            for checkpoint in ("x gone", KoordReplay.END)
        },
    },
    "quota-move-parent": {
        "numbers": {"under r": {"p": IN_P, "y": {"runtime": TWENTY}}},
        "root": {"under r": {"request": both("30", "30Gi")}},
    },
    # Pods that move are counted once.
    "quota-map-late-quota-touched": {
        "numbers": {"live": {"crew-red": {**counted(both("6", "5Gi"), both("4", "3Gi")), "runtime": both("6", "5Gi")}}},
        "root": {"live": {"request": both("6", "5Gi"), "used": both("4", "3Gi")}},
    },
    "quota-namespaces-edit": {
        "pods": {
            "lab-a/w-2": {
                "condition": {
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: Insufficient quotas, quotaName: y, runtime: "
                    "cpu:10,memory:4Gi, used: cpu:3,memory:3Gi, pod's request: cpu:99,memory:1Gi, "
                    "exceedDimensions: [cpu]. preemption: 0/1 nodes are available: 1 no potential victims., "
                    "preemption: 0/1 nodes are available: 1 No victims found on node hall-1 for preemptor pod w-2.",
                }
            }
        },
        "numbers": {
            checkpoint: {
                "x": {**counted({}, {}), "runtime": {}, "podCache": {}},
                "y": {
                    **counted(both("102", "4Gi"), both("3", "3Gi")),
                    "runtime": both("10", "4Gi"),
                    "podCache": {"lab-a/w-1": {"isAssigned": True}, "lab-a/w-2": {"isAssigned": False}},
                },
            }
            for checkpoint in ("edited", KoordReplay.END)
        },
        "root": {
            checkpoint: {"request": both("10", "4Gi"), "used": both("3", "3Gi")}
            for checkpoint in ("edited", KoordReplay.END)
        },
        "events": [
            ("Pod/lab-a/w-2", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu. "),
            ("Pod/lab-a/w-2", "FailedScheduling", "Insufficient quotas, quotaName: y, "),
        ],
    },
    # Job preemption leaves a pod that its quota refuses to preemption inside the quota.
    "quota-preempt-helm-profile": {
        "pods": {
            "works/top": {
                "condition": {
                    "reason": "Unschedulable",
                    "messageAnyOf": [
                        TOP_REFUSED.format(runtime=10)
                        + "not eligible due to terminating pod on the nominated node., preemption: "
                        "not eligible due to a terminating pod on the nominated node."
                    ],
                }
            }
        },
        "boundPodsChanged": {"works/v-2": {"terminating": True}},
        "events": [
            ("Pod/works/v-2", "Preempted", "Preempted by pod <uid of works/top> on node hall-1"),
            ("Pod/works/top", "FailedScheduling", "not eligible due to a terminating pod on the nominated node."),
        ],
    },
    # No pod is evicted if that does not free enough.
    "quota-preempt-not-enough": {
        "pods": {
            "works/top": {
                "nominatedNode": None,
                "condition": {
                    "reason": "Unschedulable",
                    "message": TOP_REFUSED.format(runtime=8)
                    + "0/1 nodes are available: 1 quota a stays exceeded without its preemptible pods of lower "
                    "priority on the node.",
                },
            }
        },
        "boundPodsChanged": {},
        "events": [("Pod/works/top", "FailedScheduling", "1 quota a stays exceeded without its preemptible pods")],
        "no events": [
            ("Pod/works/top", "FailedScheduling", "not eligible due to a terminating pod on the nominated node."),
            ("Pod/works/v-1", "Preempted", "Preempted by pod <uid of works/top> on node hall-1"),
        ],
    },
    # The state after the restart.
    "quota-random-05": {"numbers": {"tree": {"q3-2": {"runtime": both("1", "14Gi")}}}},
    # What the default quota uses is taken off once.
    "quota-run-default-capped": {"numbers": {KoordReplay.END: {"a": {"runtime": both("90", "90Gi")}}}},
    "quota-run-default-double-restart": {
        "numbers": {checkpoint: {"a": {"runtime": both("90", "90Gi")}} for checkpoint in ("live", KoordReplay.END)}
    },
    # Quotas of a tree without its root have what they have after a restart. The reference shows them no more.
    "quota-tree-total-change": {
        "objects": {KoordReplay.END: {name: {"runtime": TWENTY} for name in ("east-1", "east-2")}},
    },
}
"""Record -> what is right. By checkpoint: `numbers` of quotas, which their objects show, too, and what is shown by the
root quota's object (`root`) or by those without recorded numbers (`objects`). `events` that there are besides the
recorded ones and recorded ones that there are not (`no events`): object, reason and a part of the note.
"""

IN_PROGRESS = "the reference tried the pod before it counted the request of the pod itself; ours is counted first"
OVER_COMMITTED = "upstream does not report it: docs/deviations.md, nodes that other schedulers over-commit"
REVOKED = "upstream says nothing: docs/deviations.md, revocation, what users see"
INVALID = "upstream only logs it: docs/deviations.md, an invalid quota"
UNRECORDED = "the first attempt's Event, which this record lacks while those like it have it"
OTHERWISE = {
    "quota-parent-check-off": (
        IN_PROGRESS,
        {"no events": [("Pod/works/x-1", "FailedScheduling", "quotaName: p-1, runtime: cpu:0,memory:0, ")]},
    ),
    "quota-random-11": (
        IN_PROGRESS,
        {"no events": [("Pod/works/probe-1", "FailedScheduling", "quotaName: q1-2-1, runtime: cpu:3,memory:17Gi,")]},
    ),
    "quota-preempt-one-victim": (
        UNRECORDED,
        {"events": [("Pod/works/top", "FailedScheduling", "exceedDimensions: [cpu].")]},
    ),
    "quota-run-absent-key": (
        UNRECORDED,
        {"events": [("Pod/works/v-1", "FailedScheduling", "quotaName: v, runtime: cpu:1,example.net/chip:4,")]},
    ),
    "quota-user-priorities-quotaonly": (
        UNRECORDED,
        {"events": [("Pod/works/high-2", "FailedScheduling", "quotaName: odd, ")]},
    ),
    "quota-random-02": (OVER_COMMITTED, {"events": [("Node/hall-3", "OverCommitted", "nvidia.com/gpu 3 of 2")]}),
    "quota-random-05": (OVER_COMMITTED, {"events": [("Node/hall-2", "OverCommitted", "nvidia.com/gpu 10 of 5")]}),
    "quota-revoke-keep-more-important": (
        REVOKED,
        {"events": [("Pod/works/a-3", "QuotaRevoked", "used cpu:21,memory:3Gi, runtime cpu:20,memory:3Gi")]},
    ),
    "quota-revoke-nonpreemptible": (
        REVOKED,
        {"events": [("Pod/works/a-1", "QuotaRevoked", "used cpu:16,memory:2Gi, runtime cpu:10,memory:2Gi")]},
    ),
    "quota-delete-leaf": (
        INVALID,
        {"events": [("ElasticQuota/quota-zone/x", "QuotaInUse", "deleted while 2 pods named it")]},
    ),
    "quota-tree-total-change": (
        INVALID,
        {
            "events": [
                (f"ElasticQuota/quota-zone/{name}", "InvalidQuota", "parent east does not exist")
                for name in ("east-1", "east-2")
            ]
        },
    ),
}
"""Record -> why its Events are not all ours, and which, in the form of those in `RIGHT`."""


def corrected(record):
    """The record with what would be right instead of what is marked as a defect of the recorded scheduler.

    `shown` of its end and its checkpoints is what objects of quotas show that is not as recorded.
    """
    record = json.loads(json.dumps(record))
    expected = record["expected"]
    right = RIGHT.get(record["name"], {})
    assert bool(right) == bool(record.get("upstreamDefect"))
    for key, changes in right.get("pods", {}).items():
        expected[key].update(changes)
    if "boundPodsChanged" in right:
        expected["boundPodsChanged"] = right["boundPodsChanged"]
    for checkpoint in (KoordReplay.END, *expected.get("checkpoints", {})):
        state = expected if checkpoint == KoordReplay.END else expected["checkpoints"][checkpoint]
        numbers = right.get("numbers", {}).get(checkpoint, {})
        for quota, changes in numbers.items():
            state["summaries"][quota].update(changes)
        root = right.get("root", {}).get(checkpoint, {})
        state["shown"] = {**numbers, **right.get("objects", {}).get(checkpoint, {}), "koordinator-root-quota": root}
    return record


def corrections_of_events(record):
    """(there are these besides, those are not there), each object, reason and a part of the note."""
    _, otherwise = OTHERWISE.get(record["name"], ("", {}))
    right = RIGHT.get(record["name"], {})
    return tuple([*right.get(kind, ()), *otherwise.get(kind, ())] for kind in ("events", "no events"))
