"""The recorded decisions of koord-scheduler about quotas: what pods got, and every number of every quota."""

import json

import pytest

from koordsched.plugins.elasticquota.arithmetic.amounts import parse
from tests.parity.koord import KoordReplay, load, names, play, pod_differences
from tests.virtualtime import run

NUMBERS = {
    "used": "used",
    "nonPreemptibleUsed": "non_preemptible_used",
    "request": "request",
    "nonPreemptibleRequest": "non_preemptible_request",
    "childRequest": "child_request",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
    "selfUsed": "self_used",
    "selfRequest": "self_request",
    "selfNonPreemptibleUsed": "self_non_preemptible_used",
    "selfNonPreemptibleRequest": "self_non_preemptible_request",
    "sharedWeight": "weight",
    "max": "max",
    "min": "min",
    "runtime": "runtime",
    "autoScaleMin": "scaled_min",
}
REFRESHED = ("runtime", "autoScaleMin")
"""Upstream works these out every ten seconds, or when a pod is tried."""


WITHOUT_CONSEQUENCE = ("quota-tree-total-change",)
"""Records of a defect that shows in nothing that is compared here."""


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
        }
    },
    "quota-move-parent": {"numbers": {"under r": {"p": IN_P, "y": {"runtime": TWENTY}}}},
    # Pods that move are counted once.
    "quota-map-late-quota-touched": {
        "numbers": {"live": {"crew-red": {**counted(both("6", "5Gi"), both("4", "3Gi")), "runtime": both("6", "5Gi")}}}
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
                    "podCache": {"lab-a/w-1": {"isAssigned": True}, "lab-a/w-2": {"isAssigned": False}},
                },
            }
            for checkpoint in ("edited", KoordReplay.END)
        },
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
    },
    # Nobody is evicted if that does not free enough.
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
    },
    # The state after the restart.
    "quota-random-05": {"numbers": {"tree": {"q3-2": {"runtime": both("1", "14Gi")}}}},
    # What the default quota uses is taken off once.
    "quota-run-default-capped": {"numbers": {KoordReplay.END: {"a": {"runtime": both("90", "90Gi")}}}},
    "quota-run-default-double-restart": {
        "numbers": {checkpoint: {"a": {"runtime": both("90", "90Gi")}} for checkpoint in ("live", KoordReplay.END)}
    },
}


def nonzero(amounts):
    """A zero entry equals an absent one."""
    return {name: amount for name, amount in amounts.items() if amount}


def look(scheduler):
    """Every number of every quota, and its pods."""
    books = scheduler.profiles["koord-scheduler"].plugins["ElasticQuota"].books
    return {
        quota.name: {
            **{key: nonzero(getattr(quota, attribute)) for key, attribute in NUMBERS.items()},
            "parentName": quota.parent.name if quota.parent is not None else "",
            "tree": quota.tree.id,
            "pods": {member.pod.key: member.assigned for member in books.members(quota)},
        }
        for quota in books.quotas()
    }


def number_differences(record, replay, checkpoint, summaries, *, refreshed):
    """What differs from the recorded summaries, as texts."""
    found = []
    state = replay.states[checkpoint]
    args = {c["name"]: c["args"] for c in record["config"]["profiles"][0]["pluginConfig"]}["ElasticQuota"]
    for name, summary in summaries.items():
        quota = state.get(name)
        if quota is None:
            found.append(f"{checkpoint}: no quota {name}")
            continue
        for key in NUMBERS:
            if key in REFRESHED and (not refreshed or not summary[key] or not args.get("enableRuntimeQuota", True)):
                continue
            expected = nonzero(parse(summary[key] or {})[0])
            if quota[key] != expected:
                found.append(f"{checkpoint}: {name}.{key} {quota[key]}, expected {expected}")
        if quota["parentName"] != summary["parentName"] or quota["tree"] != summary["tree"]:
            found.append(f"{checkpoint}: {name} in {quota['parentName']}, {quota['tree']!r}")
        pods = {key: pod["isAssigned"] for key, pod in summary.get("podCache", {}).items()}
        if quota["pods"] != pods:
            found.append(f"{checkpoint}: {name} has pods {quota['pods']}, expected {pods}")
    return found


def corrected(record):
    """The record with what would be right instead of what is marked as a defect of the recorded scheduler."""
    record = json.loads(json.dumps(record))
    expected = record["expected"]
    right = RIGHT.get(record["name"], {})
    assert bool(right) == bool(record.get("upstreamDefect") and record["name"] not in WITHOUT_CONSEQUENCE)
    for key, changes in right.get("pods", {}).items():
        expected[key].update(changes)
    if "boundPodsChanged" in right:
        expected["boundPodsChanged"] = right["boundPodsChanged"]
    for checkpoint, quotas in right.get("numbers", {}).items():
        state = expected if checkpoint == KoordReplay.END else expected["checkpoints"][checkpoint]
        for quota, numbers in quotas.items():
            state["summaries"][quota].update(numbers)
    return record


@pytest.mark.parametrize("name", names("quota-"))
def test_record_replays_as_recorded(name):
    record = corrected(load(name))
    replay = run(play(record, look))
    found = pod_differences(record, replay)
    waits = {step["checkpoint"]: step for step in record.get("steps", ()) if "checkpoint" in step}
    for checkpoint, state in record["expected"].get("checkpoints", {}).items():
        step = waits[checkpoint]
        refreshed = bool(step.get("settle")) or step.get("wait", 0) > 10
        found += number_differences(record, replay, checkpoint, state["summaries"], refreshed=refreshed)
    found += number_differences(record, replay, replay.END, record["expected"]["summaries"], refreshed=True)
    assert not found, "\n".join(found)
