"""What is right where the records about gangs show a defect of the recorded scheduler."""

from tests.parity.matching import ABSENT, UNSTABLE

WITHOUT_CONSEQUENCE = ("gang-gated-member",)
"""Records of a defect that shows in nothing that is compared here: a gated member keeps the gang from being tried."""

ALSO_WRONG = ("gang-status-running", "gang-preempt-finish", "gang-with-quota")
"""Records that are not marked, but show one, or what is otherwise on purpose (docs/deviations.md)."""


def bound_with(group, count):
    """What is written to a member that is bound with others."""
    prefixes = ("internal.scheduling.koordinator.sh/", "scheduling.koordinator.sh/")
    values = {"bind-gang-group-id": group, "bind-gang-member-count": str(count)}
    return {prefix + key: value for prefix in prefixes for key, value in values.items()}


def unschedulable(*texts):
    """The condition of a pod that reads one of these."""
    return {"reason": "Unschedulable", "messageAnyOf": list(texts)}


def failed(key, *texts):
    """The Events of a pod that cannot be placed."""
    return [{"regarding": f"Pod/{key}", "reason": "FailedScheduling", "note": text} for text in texts]


def assigned(key, *nodes):
    """The Event of a pod that is bound to one of these nodes."""
    notes = {UNSTABLE: [f"Successfully assigned {key} to {node}" for node in nodes]}
    return [{"regarding": f"Pod/{key}", "reason": "Scheduled", "note": notes}]


def preempted(key, node):
    """The Event of a victim."""
    note = f"Preempted by pod <uid of a member> on node {node}"
    return {"regarding": f"Pod/{key}", "reason": "Preempted", "note": note}


def only(value):
    """In place of what is recorded, not merged with it."""
    return {"=": value}


def keys(*pods):
    """A set of pods as the page shows it."""
    return only({pod: {} for pod in pods})


def refused_for(gang, reason, outcome, nodes):
    """What a member reads that was not tried because another one cannot be placed. `outcome`: of preemption for it."""
    return (
        f'0/{nodes} nodes are available: GangGroup "{gang}" gets rejected due to member Pod "<a member>" is '
        f'unschedulable with reason "0/{nodes} nodes are available: {reason}.", alreadyWaitForBound: 0. '
        f"preemption: preemption already attempted by <a member> with message {outcome}, "
        f"preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )


def refused(name, reason, preemption, quota, nodes):
    """What a member reads that cannot be placed, nor by preemption for the gang, nor by preemption in its quota."""
    return (
        f"0/{nodes} nodes are available: {reason}. preemption: 0/{nodes} nodes are available: {preemption}., "
        f"preemption: 0/{nodes} nodes are available: {quota.format(name=name)}."
    )


def job_that_never_fits(members, reason, preemption, quota, nodes):
    """No pod is evicted for a gang that would not fit even without that pod."""
    texts = {
        name: (
            refused_for("works/job", reason, f"0/{nodes} nodes are available: {preemption}.", nodes),
            refused(name, reason, preemption, quota, nodes),
        )
        for name in members
    }
    return {
        "pods": {
            f"works/{name}": {"condition": only(unschedulable(*texts[name])), "nominatedNode": None, "victims": []}
            for name in members
        },
        "expected": {"boundPodsChanged": only({}), "victims": []},
        "preempted": {},
        "events": [event for name in members for event in failed(f"works/{name}", *texts[name])],
    }


NOT_HELPFUL_OR_NONE = "1 Preemption is not helpful for scheduling, 1 no potential victims"
PHASE_PENDING = {"PodGroup/works/job": {"status": only({"phase": "Pending", "scheduleStartTime": "<time>"})}}
NO_MORE_ROOM = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 no potential victims., "
    "preemption: 0/1 nodes are available: 1 No victims found on node bay-1 for preemptor pod <a member>."
)
LOW = {
    name: (
        refused_for("works/low", "2 Insufficient cpu", f"0/2 nodes are available: {NOT_HELPFUL_OR_NONE}.", 2),
        refused(
            name,
            "2 Insufficient cpu",
            NOT_HELPFUL_OR_NONE,
            "1 No victims found on node bay-2 for preemptor pod {name}, 1 Preemption is not helpful for scheduling",
            2,
        ),
    )
    for name in ("a-1", "a-2", "a-3")
}

WAITED_FOR_THE_OTHER = "0/1 nodes are available: 1 all pending pods is already been attempted."
PREEMPTED = {
    "reason": "PreemptionByScheduler",
    "message": "koord-scheduler: preempting to accommodate higher priority pods, preemptor: works/job, "
    "triggerPod: <a member>",
}

RIGHT = {
    # The members of this scheduler are tried, whichever member came last; they wait for the one of the other scheduler.
    "gang-foreign-member": {
        "pods": {f"works/{name}": {"condition": unschedulable(WAITED_FOR_THE_OTHER)} for name in ("m-1", "m-2")},
        "events": [event for name in ("m-1", "m-2") for event in failed(f"works/{name}", WAITED_FOR_THE_OTHER)],
    },
    # Members beyond the minimum are tried as well.
    "gang-min-below-total-room3": {
        "pods": {
            "works/m-1": {"bound": "bay-1", "annotations": only(bound_with("works/job", 2))},
            "works/m-2": {"bound": "bay-1", "boundUnstable": ABSENT, "annotations": only(bound_with("works/job", 2))},
            "works/m-3": {"bound": "bay-1", "annotations": only({})},
            "works/m-4": {
                "bound": None,
                "boundUnstable": ABSENT,
                "annotations": only({}),
                "condition": unschedulable(NO_MORE_ROOM),
            },
        },
        "summaries": {
            "works/job": {
                "boundChildren": keys("works/m-1", "works/m-2", "works/m-3"),
                "pendingChildren": keys("works/m-4"),
            }
        },
        "expected": {
            "objects": {"PodGroup/works/job": {"status": {"scheduled": 3}}},
            "boundCount": {"works/job": 3},
        },
        "events": [
            event
            for name in ("m-1", "m-2", "m-3", "m-4")
            for event in (*assigned(f"works/{name}", "bay-1"), *failed(f"works/{name}", NO_MORE_ROOM))
        ],
    },
    # The rack whose victims are cheaper.
    "gang-net-preempt": {
        "pods": {
            f"works/{name}": {"nominatedNode": only({UNSTABLE: [None, node]})}
            for name, node in {"m-1": "bay-3", "m-2": "bay-3", "m-3": "bay-4", "m-4": "bay-4"}.items()
        },
        "expected": {
            "boundPodsChanged": only(
                {
                    "works/v-3": {
                        "node": "bay-3",
                        "terminating": True,
                        "disruption": PREEMPTED,
                    }
                }
            )
        },
        "preempted": {"works/v-3": "bay-3"},
    },
    # The gang has its members still when its PodGroup comes back.
    "gang-podgroup-deleted": {
        "pods": {
            f"works/{name}": {
                "bound": None,
                "boundUnstable": ["bay-1", "bay-2"],
                "condition": None,
                "nominatedNode": None,
                "annotations": bound_with("works/job", 2),
            }
            for name in ("m-1", "m-2")
        },
        "summaries": {
            "works/job": {
                "children": keys("works/m-1", "works/m-2"),
                "boundChildren": keys("works/m-1", "works/m-2"),
                "onceResourceSatisfied": True,
                "gangGroupInfo": {"OnceResourceSatisfied": True},
            }
        },
        "expected": {
            "objects": {
                "PodGroup/works/job": {
                    "status": only({"phase": "Scheduled", "scheduled": 2, "scheduleStartTime": "<time>"})
                }
            },
            "boundCount": {"works/job": 2},
            "checkpoints": {
                "no PodGroup": {
                    "summaries": {
                        "works/job": {
                            "name": "works/job",
                            "waitTime": 0,
                            "mode": "Strict",
                            "gangMatchPolicy": "once-satisfied",
                            "minRequiredNumber": 0,
                            "totalChildrenNum": 0,
                            "gangGroup": ["works/job"],
                            "children": {"works/m-1": {}, "works/m-2": {}},
                            "pendingChildren": {"works/m-1": {}, "works/m-2": {}},
                            "waitingForBindChildren": {},
                            "boundChildren": {},
                            "onceResourceSatisfied": False,
                            "gangGroupInfo": {
                                "Initialized": False,
                                "GangGroupId": "",
                                "GangGroup": None,
                                "OnceResourceSatisfied": False,
                                "WaitingGangIDs": {},
                                "RepresentativePodKey": "",
                                "BindingMemberPods": [],
                            },
                            "gangFrom": "GangFromPodAnnotation",
                            "hasGangInit": False,
                        }
                    }
                }
            },
        },
        "events": [event for name in ("m-1", "m-2") for event in assigned(f"works/{name}", "bay-1", "bay-2")],
    },
    # One of two would fit without its victim: none goes.
    "gang-preempt-not-enough": job_that_never_fits(
        ("m-1", "m-2"),
        "2 Insufficient cpu",
        "1 Insufficient cpu, 1 no potential victims",
        "1 No victims found on node bay-1 for preemptor pod {name}, "
        "1 No victims found on node bay-2 for preemptor pod {name}",
        2,
    ),
    "gang-preempt-overcommit": job_that_never_fits(
        ("m-1", "m-2", "m-3"),
        "1 Insufficient cpu",
        "1 Insufficient cpu",
        "1 No victims found on node bay-1 for preemptor pod {name}",
        1,
    ),
    # Each member gets the node that was planned for it: both victims go in one attempt.
    "gang-preempt-finish": {
        "pods": {
            f"works/{name}": {"bound": node, "anyOf": [node]} for name, node in {"m-1": "bay-1", "m-2": "bay-2"}.items()
        },
        "events": [
            event
            for name, node in {"m-1": "bay-1", "m-2": "bay-2"}.items()
            for event in (
                *assigned(f"works/{name}", node),
                *failed(
                    f"works/{name}",
                    refused_for("works/job", "2 Insufficient cpu", "preempt success, alreadyWaitingForBound: 0/2", 2),
                ),
            )
        ],
    },
    # Each member gets a node of its own, and both victims go at once.
    "gang-preempt-two-nodes": {
        "pods": {
            "works/m-1": {"nominatedNode": only({UNSTABLE: [None, "bay-1"]})},
            "works/m-2": {"nominatedNode": only({UNSTABLE: [None, "bay-2"]})},
        },
        "expected": {
            "boundPodsChanged": {
                "works/v-2": {
                    "node": "bay-2",
                    "terminating": True,
                    "disruption": PREEMPTED,
                }
            }
        },
        "preempted": {"works/v-1": "bay-1", "works/v-2": "bay-2"},
    },
    # No member holds room in the quota while it waits for the others (D18).
    "gang-with-quota": {"expected": {"objects": {"ElasticQuota/quota-zone/tight": {"status": only({})}}}},
    # Pods that have failed are no secret to the controller.
    "gang-status-running": {
        "expected": {"objects": {"PodGroup/works/job": {"status": {"phase": "Failed", "running": 2, "failed": 1}}}}
    },
    # Without members all counters are 0.
    "gang-status-members-gone": {
        "expected": {"objects": PHASE_PENDING, "checkpoints": {"gone": {"objects": PHASE_PENDING}}}
    },
    # The gang of higher priority gets the room, for none is tried so often that the other has no turn.
    "gang-two-compete-priority": {
        "pods": {
            **{
                f"works/{name}": {
                    "bound": "bay-2",
                    "anyOf": ["bay-2"],
                    "condition": None,
                    "nominatedNode": None,
                    "annotations": bound_with("works/high", 3),
                }
                for name in ("b-1", "b-2", "b-3")
            },
            **{
                f"works/{name}": {
                    "bound": None,
                    "anyOf": [],
                    "condition": unschedulable(*LOW[name]),
                    "annotations": only({}),
                    "terminating": ABSENT,
                    "disruptionTarget": ABSENT,
                }
                for name in ("a-1", "a-2", "a-3")
            },
        },
        "summaries": {
            "works/high": {
                "pendingChildren": keys(),
                "boundChildren": keys("works/b-1", "works/b-2", "works/b-3"),
                "onceResourceSatisfied": True,
                "gangGroupInfo": {"OnceResourceSatisfied": True, "RepresentativePodKey": only("")},
            },
            "works/low": {
                "pendingChildren": keys("works/a-1", "works/a-2", "works/a-3"),
                "boundChildren": keys(),
                "onceResourceSatisfied": False,
                "gangGroupInfo": {
                    "OnceResourceSatisfied": False,
                    "RepresentativePodKey": {UNSTABLE: ["<one of the pending>", ""]},
                },
            },
        },
        "expected": {"boundCount": {"works/high": 3, "works/low": 0}},
        "no events": [("Scheduled", f"works/a-{number}") for number in (1, 2, 3)],
        "preempted": {},
        "events": [event for name in ("b-1", "b-2", "b-3") for event in assigned(f"works/{name}", "bay-2")]
        + [event for name in LOW for event in failed(f"works/{name}", *LOW[name])],
    },
}
"""What is right instead of what the recorded scheduler did. `events` may occur besides the recorded ones."""


def merged(recorded, changes):
    """The recorded value with changes: `only(value)` in its place, ABSENT for no value at all, dicts one in another."""
    if not isinstance(changes, dict) or changes.keys() == {UNSTABLE}:
        return changes
    if changes.keys() == {"="}:
        return changes["="]
    found = dict(recorded) if isinstance(recorded, dict) else {}
    for key, change in changes.items():
        if change == ABSENT:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), change)
    return found


def corrected(record):
    """The record with what would be right instead of what is marked as a defect of the recorded scheduler."""
    right = RIGHT.get(record["name"], {})
    defect = record.get("upstreamDefect") or record["name"] in ALSO_WRONG
    assert bool(right) == bool(defect and record["name"] not in WITHOUT_CONSEQUENCE)
    expected = merged(record["expected"], right.get("pods", {}))
    expected = merged(expected, {"summaries": right.get("summaries", {})})
    expected = merged(expected, right.get("expected", {}))
    without = {(f"Pod/{key}", reason) for reason, key in right.get("no events", ())}
    events = [event for event in expected["events"] if (event["regarding"], event["reason"]) not in without]
    if "preempted" in right:
        events = [event for event in events if event["reason"] != "Preempted"]
        events += [preempted(key, node) for key, node in right["preempted"].items()]
    expected["events"] = events
    expected["possible events"] = right.get("events", [])
    return record | {"expected": expected}
