"""What endpoints, the command and metrics show of gangs (coscheduling spec 2.6, 5; cases 24 and 27)."""

import asyncio
import json

import msgspec
import pytest

from koordsched.framework.declaration import NotFound, finished
from koordsched.framework.display import Line, Table
from koordsched.observability.metrics import Metrics
from koordsched.plugins.coscheduling import DECLARATION
from koordsched.plugins.coscheduling.metrics import FAILED, SUCCEEDED, job_size, observe_gangs
from tests.plugins.coscheduling.running import GangCluster, scheduling
from tests.plugins.harness import scheduler
from tests.plugins.objects import node, pod
from tests.virtualtime import run

GANG = "gang.scheduling.koordinator.sh/"
LABEL = "pod-group.scheduling.sigs.k8s.io"
API = "scheduling.sigs.k8s.io/v1alpha1"
POINTS = ("preEnqueue", "preFilter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "postBind")
PROFILE = {"plugins": {point: {"enabled": [{"name": "Coscheduling"}]} for point in POINTS}}


def pod_group(name="crd", minimum=2, seconds=None, **annotations):
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    meta |= {"creationTimestamp": "2030-01-01T00:00:00Z"}
    meta |= {"annotations": {GANG + key.replace("_", "-"): text for key, text in annotations.items()}}
    spec = {"minMember": minimum} | ({} if seconds is None else {"scheduleTimeoutSeconds": seconds})
    return {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": spec}


def member(name, /, on=None, label=None, message="", **annotations):
    thing = pod(name, on=on)
    thing["metadata"]["annotations"] = {GANG + key.replace("_", "-"): text for key, text in annotations.items()}
    if label:
        thing["metadata"]["labels"] = {LABEL: label}
    if message:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        thing.setdefault("status", {})["conditions"] = [condition]
    return thing


def plugin_on(*objects):
    offline = scheduler([node("alder"), *objects], PROFILE)
    return offline.profiles["default-scheduler"].plugins["Coscheduling"]


def page(path):
    (found,) = [each for each in DECLARATION.pages if each.path == path]
    return found


def asked(plugin, path, **parameters):
    """The answer as JSON has it."""
    answer = page(path).answer(plugin, parameters)
    if hasattr(answer, "send"):
        answer = finished(answer)
    return json.loads(msgspec.json.encode(answer))


def one(plugin, name, namespace="default"):
    return asked(plugin, "/apis/v1/plugins/Coscheduling/gang/{namespace}/{name}", namespace=namespace, name=name)


def printed(parts):
    """Lines as they are, rows of tables as tuples."""
    return [part.text if isinstance(part, Line) else list(part.rows) for part in parts]


def test_case_27_a_gang_as_upstream_shows_it():
    plugin = plugin_on(
        pod_group(minimum=2, total_number="3", mode="NonStrict", groups='["default/crd","default/other"]'),
        member("m-1", on="alder", label="crd"),
        member("m-2", label="crd"),
    )
    assert one(plugin, "crd") == {
        "name": "default/crd",
        "waitTime": 600000000000,
        "createTime": "2030-01-01T00:00:00Z",
        "mode": "NonStrict",
        "gangMatchPolicy": "once-satisfied",
        "minRequiredNumber": 2,
        "totalChildrenNum": 3,
        "gangGroup": ["default/crd", "default/other"],
        "children": {"default/m-1": {}, "default/m-2": {}},
        "pendingChildren": {"default/m-2": {}},
        "waitingForBindChildren": {},
        "boundChildren": {"default/m-1": {}},
        "onceResourceSatisfied": True,
        "gangGroupInfo": {
            "Initialized": True,
            "GangGroupId": "default/crd,default/other",
            "GangGroup": ["default/crd", "default/other"],
            "OnceResourceSatisfied": True,
            "WaitingGangIDs": {},
            "RepresentativePodKey": "",
            "BindingMemberPods": [],
        },
        "gangFrom": "GangFromPodGroupCrd",
        "hasGangInit": True,
    }


def test_a_gang_that_nothing_defines():
    shown = one(plugin_on(member("m-1", label="crd")), "crd")
    assert shown["gangGroupInfo"] == {
        "Initialized": False,
        "GangGroupId": "",
        "GangGroup": None,
        "OnceResourceSatisfied": False,
        "WaitingGangIDs": {},
        "RepresentativePodKey": "",
        "BindingMemberPods": [],
    }
    assert (shown["waitTime"], shown["minRequiredNumber"], shown["totalChildrenNum"]) == (0, 0, 0)
    assert (shown["gangGroup"], shown["gangFrom"], shown["hasGangInit"]) == (
        ["default/crd"],
        "GangFromPodAnnotation",
        False,
    )


def test_all_gangs_by_id():
    plugin = plugin_on(pod_group(), member("m-1", name="a", min_available="1"))
    assert asked(plugin, "/apis/v1/plugins/Coscheduling/gangs").keys() == {"default/crd", "default/a"}


def test_case_27_an_unknown_gang():
    plugin = plugin_on()
    with pytest.raises(NotFound, match=r"^cannot find gang default/none$"):
        one(plugin, "none")
    with pytest.raises(NotFound, match="cannot find gang none; a gang is named NAMESPACE/NAME"):
        asked(plugin, "/debug/gangs/{name}", name="none")


def test_a_line_for_each():
    plugin = plugin_on(
        pod_group("ready", 1),
        member("r-1", label="ready"),
        pod_group("small", 3),
        member("s-1", label="small"),
        pod_group("done", 1),
        member("d-1", on="alder", label="done"),
        member("u-1", label="missing"),
        member("i-1", name="illegal", min_available="x"),
        pod_group("empty", 1),
    )
    listing = DECLARATION.views[0]
    rows, *problems = printed(listing.show(listing.report(plugin)))
    assert [row[:2] for row in rows] == [
        ("default/done", "Bound"),
        ("default/empty", "Incomplete"),
        ("default/illegal", "Undefined"),
        ("default/missing", "Undefined"),
        ("default/ready", "Pending"),
        ("default/small", "Incomplete"),
    ]
    assert rows[4] == ("default/ready", "Pending", "1", "1", "1", "0", "0", "Strict", "once-satisfied")
    assert problems == [
        "default/illegal: no pod has a legal min-available",
        "default/missing: there is no PodGroup of this name",
        "default/small: memberGangs [default/small] child pod not collect enough",
    ]


def test_one_gang_with_its_members_and_its_group():
    both = '["default/left","default/right"]'
    plugin = plugin_on(
        pod_group("left", 2, groups=both, seconds=90, network_topology_spec="{}"),
        pod_group("right", 1, groups=both),
        member("l-1", label="left", message="0/1 nodes are available: 1 Insufficient cpu."),
        member("l-2", label="left"),
        member("r-1", label="right"),
    )
    detail = DECLARATION.views[1].detail
    shown = printed(detail.show(detail.report(plugin, "default/left")))
    assert shown == [
        "Gang default/left, Pending, at least 2 of 2, Strict, once-satisfied, defined by its PodGroup, "
        "members wait 1m30s for each other",
        "network topology: {}",
        "",
        "placed together with default/right",
        [("default/right", "Pending", "1", "1", "1", "0", "0", "Strict", "once-satisfied")],
        "",
        [("default/l-1", "Pending", "-"), ("default/l-2", "Pending", "-")],
        "",
        "1 of the members reads: 0/1 nodes are available: 1 Insufficient cpu.",
    ]
    assert asked(plugin, "/debug/gangs/{name}", name="default/left")["gang"]["gang"] == "default/left"


def test_offline_each_member_reads_why_the_gang_has_no_place():
    members = [member(f"m-{at}", label="crd") for at in range(3)]
    for at, thing in enumerate(members):
        thing["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "99" if at == 1 else "1"}}
    offline = scheduler([node("alder"), pod_group("crd", 3), *members], PROFILE)
    first, second, third = (offline.schedule(f"default/m-{at}").message for at in range(3))
    assert second.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert third.startswith(
        '0/1 nodes are available: GangGroup "default/crd" gets rejected due to member Pod "default/m-1"'
    )
    assert first == third.replace("available: ", "available: 1 ", 1)


@pytest.mark.parametrize("bound, state", [(0, "Pending"), (1, "Pending"), (2, "Bound")])
def test_a_gang_is_bound_once_enough_members_are(bound, state):
    members = [member(f"m-{at}", label="crd", on="alder" if at < bound else None) for at in range(3)]
    plugin = plugin_on(pod_group("crd", 2), *members)
    assert asked(plugin, "/debug/gangs/{name}", name="default/crd")["gang"]["state"] == state


def test_reports_are_read_back():
    plugin = plugin_on(pod_group(), member("m-1", label="crd"))
    for view in DECLARATION.views:
        answer = view.report(plugin)
        assert msgspec.json.decode(msgspec.json.encode(answer), type=view.type) == answer
        assert all(isinstance(part, (Line, Table)) for part in view.show(answer))


@pytest.mark.parametrize(
    "members, label",
    [(-1, "0"), (0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_case_24_job_size(members, label):
    assert job_size(members) == label


def test_metrics():
    plugin = plugin_on(
        pod_group("ready", 1),
        member("r-1", label="ready"),
        pod_group("small", 3),
        member("s-1", label="small"),
    )
    metrics = Metrics(process_metrics=False)
    observe_gangs(plugin, metrics)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if "gang" in sample.name
    }
    now = plugin.handle.clock.wall()
    assert values.pop(("koordsched_gang_oldest_wait_seconds",)) == pytest.approx(now - 1893456000.0, abs=5)
    assert values == {
        ("scheduler_waiting_gang_group_number",): 0,
        ("koordsched_gangs", "Undefined"): 0,
        ("koordsched_gangs", "Incomplete"): 1,
        ("koordsched_gangs", "Pending"): 1,
        ("koordsched_gangs", "Placed"): 0,
        ("koordsched_gangs", "Bound"): 0,
    }


def test_attempts_are_timed():
    async def main(what):
        cluster = GangCluster(cpu="8")
        async with scheduling(cluster) as running:
            await asyncio.sleep(10)
            cluster.group(2, "small")
            cluster.member("s-1", "small")
            cluster.member("s-2", "small")
            cluster.group(2, "large")
            cluster.member("l-1", "large", cpu="5")
            cluster.member("l-2", "large", cpu="5")
            await asyncio.sleep(1)
            return {
                (sample.labels["reason"], sample.labels["job_size"]): sample.value
                for family in running.scheduler.metrics.registry.collect()
                for sample in family.samples
                if sample.name == f"scheduler_gang_schedule_cycle_duration_seconds_{what}"
            }

    seconds = run(main("sum"))
    assert max(seconds.values()) < 1
    counts = run(main("count"))
    assert counts.keys() == {(SUCCEEDED, "1-100"), (FAILED, "1-100")}
    assert counts[SUCCEEDED, "1-100"] == 1
