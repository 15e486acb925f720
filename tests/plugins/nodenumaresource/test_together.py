"""With preemption, quotas, loads, gates, Permit, resizes, nominations, failing bindings, other schedulers."""

import asyncio
import json
from random import Random

import pytest

from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from tests.plugins.elasticquota import objects as quotas
from tests.plugins.elasticquota import world as quotaworld
from tests.plugins.loadaware.objects import metric
from tests.plugins.nodenumaresource import cpusets
from tests.plugins.nodenumaresource.machines import detail, holder, node, topology
from tests.plugins.nodenumaresource.running import (
    cluster,
    condition_of,
    cpus_of,
    put,
    remove,
    replace,
    status_of,
    where,
)
from tests.plugins.nodenumaresource.world import NAME, configuration, lsr, named, profile
from tests.plugins.objects import spread
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import WALL_EPOCH, run

T1 = detail(2, 1, 4)
ZONES = [("8", "64Gi"), ("8", "64Gi")]
NOT_ENOUGH = "not enough cpus available to satisfy request"
WHOLE = {"requiredCPUBindPolicy": "FullPCPUs"}


def held(running, name="m1"):
    """(list of CPUs that pods hold, by the books; what is in use per NUMA node and resource, without zeros)."""
    columns, table = (
        running.scheduler.profiles["default-scheduler"].plugins[NAME].columns,
        running.scheduler.cluster.table,
    )
    row = table.row_of[name]
    used = columns.used.data[row].tolist()
    return {cpu for cpu in range(64) if columns.held(row) >> cpu & 1}, {
        at: amount for at, amount in enumerate(used) if amount
    }


def with_(thing, **spec):
    """A pod with more in its spec."""
    return {**thing, "spec": {**thing["spec"], **spec}}


# --- preemption -----------------------------------------------------------------------------------------


def test_a_pod_preempts_for_cpus_and_gets_them():
    async def scenario():
        async with cluster(node(cpu="64"), topology(T1)) as (embedded, running):
            Kubelet(embedded)
            for name, priority in (("low", 9000), ("high", 9900)):
                put(embedded, lsr(name, cpu="8", priority=priority, spec=WHOLE))
                await asyncio.sleep(1)
            before = cpus_of(embedded, "low"), cpus_of(embedded, "high")
            put(embedded, lsr("urgent", cpu="6", priority=9500, spec=WHOLE))
            await asyncio.sleep(60)
            exists = {thing["metadata"]["name"] for thing in embedded.registry.list(embedded.resource("Pod"))}
            return before, exists, cpus_of(embedded, "urgent"), held(running)[0]

    before, exists, given, books = run(scenario())
    assert before == ("0-7", "8-15")
    assert exists == {"high", "urgent"}
    assert given == "0-5"
    assert books == {*range(6), *range(8, 16)}


def test_a_pod_preempts_for_a_numa_node_and_gets_it():
    async def scenario():
        single = node(cpu="16", numa_topology_policy="SingleNUMANode")
        async with cluster(single, topology(T1, ZONES)) as (embedded, running):
            Kubelet(embedded)
            for name, cpu, priority in (("a", "5", 9400), ("b", "4", 9000), ("c", "2", 9900)):
                put(embedded, lsr(name, cpu=cpu, priority=priority, memory="1Gi"))
                await asyncio.sleep(1)
            places = [set(cpusets.ids_of(embedded.get("Pod", name))) for name in "abc"]
            put(embedded, lsr("urgent", cpu="6", priority=9500, memory="1Gi"))
            await asyncio.sleep(60)
            exists = {thing["metadata"]["name"] for thing in embedded.registry.list(embedded.resource("Pod"))}
            return places, exists, status_of(embedded, "urgent"), held(running)

    (a, b, c), exists, given, (cpus, used) = run(scenario())
    assert (a, b, c) == ({0, 1, 2, 3, 4}, {8, 9, 10, 11}, {12, 13})
    assert exists == {"a", "c", "urgent"}
    assert [each["node"] for each in given["numaNodeResources"]] == [1]
    assert cpus == a | c | cpusets.ids(given["cpuset"])
    gib = 1 << 30
    assert used == {0: 5000, 1: 8000, 8: gib, 9: 2 * gib}


def test_equal_pods_do_not_preempt_each_other():
    async def scenario():
        async with cluster(node(cpu="64"), topology(T1)) as (embedded, _):
            put(embedded, lsr("first", cpu="16", spec=WHOLE))
            await asyncio.sleep(1)
            put(embedded, lsr("second", cpu="2", spec=WHOLE))
            await asyncio.sleep(30)
            return where(embedded, "first"), where(embedded, "second"), condition_of(embedded, "second")

    first, second, (reason, message) = run(scenario())
    assert (first, second, reason) == ("m1", None, "Unschedulable")
    assert message.startswith(f"0/1 nodes are available: 1 {NOT_ENOUGH}.")


def test_cpus_of_victims_are_kept_for_the_preemptor():
    """While the victim goes, a pod of lower priority does not take what it leaves, by its nomination."""

    async def scenario():
        async with cluster(node(cpu="16"), topology(T1)) as (embedded, _):
            Kubelet(embedded)
            put(embedded, lsr("low", cpu="16", priority=9000, spec=WHOLE))
            await asyncio.sleep(1)
            put(embedded, lsr("urgent", cpu="16", priority=9500, spec=WHOLE))
            await asyncio.sleep(0.2)
            put(embedded, lsr("late", cpu="4", priority=9100, spec=WHOLE))
            await asyncio.sleep(60)
            return cpus_of(embedded, "urgent"), where(embedded, "late")

    assert run(scenario()) == ("0-15", None)


# --- quotas, loads, gates, spreading -----------------------------------------------------------------------


def test_with_quotas():
    """What CPUs refuse uses no quota; what the quota refuses holds no CPUs."""
    points = {
        "preFilter": {"enabled": [{"name": NAME}, {"name": "ElasticQuota"}]},
        "reserve": {"enabled": [{"name": NAME}, {"name": "ElasticQuota"}]},
        "postFilter": quotaworld.ONLY_QUOTA_PREEMPTS,
    }

    def wanting(name, cpu):
        thing = lsr(name, cpu=cpu, spec=WHOLE, memory="1Gi")
        thing["metadata"]["labels"] |= quotas.pod(name, {"cpu": 1}, "q")["metadata"]["labels"]
        return thing

    async def scenario():
        q = quotas.quota("q", {"cpu": 12, "memory": "100Gi"}, namespace="default")
        async with cluster(node(), topology(T1), holder("h", "0-7", cpu="8"), q, points=points) as (embedded, running):
            books = running.scheduler.profiles["default-scheduler"].plugins["ElasticQuota"].books

            def used():
                return books.quota("q").used.get("cpu", 0) // 10**9, len(held(running)[0])

            seen = []
            for name, cpu in (("too-many-cpus", "10"), ("fits", "4"), ("too-much-quota", "12")):
                put(embedded, wanting(name, cpu))
                await asyncio.sleep(5)
                seen.append(used())
            return seen, [where(embedded, name) for name in ("too-many-cpus", "fits", "too-much-quota")]

    assert run(scenario()) == ([(0, 8), (4, 12), (4, 12)], [None, "m1", None])


def test_a_pod_preempts_within_its_quota_for_cpus():
    """The quota has room for one of them; the victim is the one of the quota, and its CPUs go to the preemptor."""
    points = {
        "preFilter": {"enabled": [{"name": NAME}, {"name": "ElasticQuota"}]},
        "reserve": {"enabled": [{"name": NAME}, {"name": "ElasticQuota"}]},
        "postFilter": quotaworld.ONLY_QUOTA_PREEMPTS,
    }

    def wanting(name, priority, quota):
        thing = lsr(name, cpu="8", spec=WHOLE, memory="1Gi", priority=priority)
        thing["metadata"]["labels"] |= quotas.pod(name, {"cpu": 1}, quota)["metadata"]["labels"]
        return thing

    async def scenario():
        both = [quotas.quota(name, {"cpu": 8, "memory": "100Gi"}, namespace="default") for name in ("q", "r")]
        async with cluster(node(), topology(T1), *both, points=points) as (embedded, running):
            Kubelet(embedded)
            for name, priority, quota in (("other", 9000, "r"), ("low", 9100, "q"), ("urgent", 9500, "q")):
                put(embedded, wanting(name, priority, quota))
                await asyncio.sleep(30)
            exists = {thing["metadata"]["name"] for thing in embedded.registry.list(embedded.resource("Pod"))}
            return exists, cpus_of(embedded, "other"), cpus_of(embedded, "urgent"), len(held(running)[0])

    assert run(scenario()) == ({"other", "urgent"}, "0-7", "8-15", 16)


def test_a_pod_that_permit_refuses_gives_its_cpus_back():

    class Refuses(Permit):
        name = "Refuses"

        def __init__(self, args, handle):
            pass

        def permit(self, cycle, pod, row):
            return Status(Code.UNSCHEDULABLE, ("not now",)), 0.0

    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Refuses]) as (embedded, running):
            put(embedded, lsr())
            await asyncio.sleep(30)
            return where(embedded, "p"), held(running)

    assert run(scenario()) == (None, (set(), {}))


def test_with_loads():
    """The node that loads prefer has no CPUs left: the other one is taken. A node that is busy gives no CPUs."""
    load = {"enabled": [{"name": NAME}, {"name": "LoadAwareScheduling"}]}
    points = {"filter": load, "reserve": load, "score": {"enabled": [{"name": NAME}, {"name": "LoadAwareScheduling"}]}}

    async def scenario():
        things = [named(node(), name) for name in ("idle", "half", "busy")]
        things += [named(topology(T1), name) for name in ("idle", "half", "busy")]
        things += [
            metric(name, (cpu, "1Gi"), at=WALL_EPOCH + 500)
            for name, cpu in (("idle", "0"), ("half", "30"), ("busy", "60"))
        ]
        full = holder("h", "0-15", cpu="1")
        full["spec"]["nodeName"] = "idle"
        async with cluster(*things, full, points=points) as (embedded, _):
            put(embedded, lsr(spec=WHOLE))
            put(embedded, lsr("large", cpu="14", spec=WHOLE))
            await asyncio.sleep(10)
            return where(embedded, "p"), where(embedded, "large"), condition_of(embedded, "large")[1]

    placed, large, message = run(scenario())
    assert (placed, large) == ("half", None)
    assert message.startswith(f"0/3 nodes are available: 1 node(s) cpu usage exceed threshold, 2 {NOT_ENOUGH}.")


def test_a_gated_pod_holds_nothing_until_it_is_let_in():
    async def scenario():
        async with cluster(node(), topology(T1)) as (embedded, running):
            put(embedded, with_(lsr("gated"), schedulingGates=[{"name": "example.com/wait"}]))
            await asyncio.sleep(5)
            put(embedded, lsr("other"))
            await asyncio.sleep(5)
            seen = [cpus_of(embedded, "gated"), cpus_of(embedded, "other"), len(held(running)[0])]
            stored = embedded.get("Pod", "gated")
            replace(embedded, {**stored, "spec": {**stored["spec"], "schedulingGates": []}})
            await asyncio.sleep(5)
            return [*seen, cpus_of(embedded, "gated")]

    assert run(scenario()) == [None, "0-3", 4, "8-11"]


def test_with_topology_spread():
    """Pods that must spread go where CPUs are, one per node; what does not spread waits."""

    async def scenario():
        nodes = []
        for name in ("a", "b", "c"):
            thing = named(node(), name)
            thing["metadata"]["labels"]["kubernetes.io/hostname"] = name
            nodes += [thing, named(topology(T1), name)]
        full = holder("h", "0-15", cpu="1")
        full["spec"]["nodeName"] = "b"
        async with cluster(*nodes, full) as (embedded, _):
            for at in range(3):
                thing = lsr(f"p{at}", cpu="2", spec=WHOLE)
                thing["metadata"]["labels"]["app"] = "web"
                put(
                    embedded,
                    with_(thing, topologySpreadConstraints=[spread("kubernetes.io/hostname", 1, {"app": "web"})]),
                )
                await asyncio.sleep(5)
            before = [where(embedded, f"p{at}") for at in range(3)]
            remove(embedded, full)
            await asyncio.sleep(15)
            return before, [where(embedded, f"p{at}") for at in range(3)]

    before, after = run(scenario())
    assert sorted(before[:2]) == ["a", "c"]
    assert before[2] is None
    assert after == [*before[:2], "b"]


# --- Permit -------------------------------------------------------------------------------------------------


class Hold(Permit):
    """Pods named so wait until a test lets go; afterwards they are refused."""

    name = "Hold"

    def __init__(self, args, handle):
        self.handle = handle
        self.held = set()

    def permit(self, cycle, pod, row):
        if not pod.name.startswith("held"):
            return SUCCESS, 0.0
        if pod.name in self.held:
            return Status(Code.UNSCHEDULABLE, ("held before",)), 0.0
        self.held.add(pod.name)
        return Status(Code.WAIT), 900.0


@pytest.mark.parametrize("policy", ["", "SingleNUMANode", "BestEffort"])
def test_pods_that_wait_on_permit_hold_cpus_until_they_are_rejected(policy):
    async def scenario():
        labelled = node(cpu="16", numa_topology_policy=policy)
        async with cluster(labelled, topology(T1, ZONES), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held", cpu="8", memory="1Gi"))
            await asyncio.sleep(2)
            seen = [len(held(running)[0])]
            put(embedded, lsr("other", cpu="4", memory="1Gi"))
            await asyncio.sleep(2)
            seen += [cpus_of(embedded, "held"), cpus_of(embedded, "other")]
            replace(embedded, topology(T1, [("8", "32Gi"), ("8", "64Gi")]))
            await asyncio.sleep(2)
            seen.append(len(held(running)[0]))
            (waiting,) = running.scheduler.profiles["default-scheduler"].plugins["Hold"].handle.waiting
            waiting.reject("Hold", "let go")
            await asyncio.sleep(5)
            seen.append((held(running)[0], sorted(held(running)[1].values())))
            return seen

    gib = 1 << 30
    used = [4000, gib] if policy else []
    assert run(scenario()) == [8, None, "8-11", 12, ({8, 9, 10, 11}, used)]


def test_pods_that_wait_on_permit_are_bound_with_what_they_held():
    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held"))
            await asyncio.sleep(100)
            put(embedded, lsr("other"))
            await asyncio.sleep(2)
            (waiting,) = running.scheduler.profiles["default-scheduler"].plugins["Hold"].handle.waiting
            waiting.allow("Hold")
            await asyncio.sleep(2)
            return cpus_of(embedded, "held"), cpus_of(embedded, "other"), held(running)[0]

    assert run(scenario()) == ("0-3", "8-11", {0, 1, 2, 3, 8, 9, 10, 11})


def test_a_pod_that_is_deleted_while_it_waits_gives_its_cpus_back():
    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held"))
            await asyncio.sleep(2)
            before = len(held(running)[0])
            remove(embedded, embedded.get("Pod", "held"))
            await asyncio.sleep(2)
            return before, held(running)[0]

    assert run(scenario()) == (4, set())


@pytest.mark.parametrize("back", [False, True])
def test_a_node_that_goes_while_a_pod_waits_on_it(back):
    """Another node gets its row: what is given back does not come off that one's books."""

    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held"))
            await asyncio.sleep(2)
            remove(embedded, node())
            await asyncio.sleep(1)
            put(embedded, named(topology(T1), "m2"))
            put(embedded, named(node(), "m2"))
            if back:
                put(embedded, node())
            await asyncio.sleep(1)
            put(embedded, lsr("other", cpu="6"))
            await asyncio.sleep(2)
            place = where(embedded, "other")
            for waiting in list(running.scheduler.profiles["default-scheduler"].plugins["Hold"].handle.waiting):
                waiting.reject("Hold", "let go")
            await asyncio.sleep(5)
            names = sorted(running.scheduler.cluster.table.row_of)
            return place, {name: len(held(running, name)[0]) for name in names}, cpus_of(embedded, "held")

    place, books, given = run(scenario())
    assert given is None
    assert books == {name: 6 if name == place else 0 for name in books}
    assert place in books


def test_a_report_that_goes_while_a_pod_waits():
    """It is bound with what it was given: the CPUs are there, though nothing says so any more."""

    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held"))
            await asyncio.sleep(2)
            remove(embedded, topology(T1))
            await asyncio.sleep(1)
            (waiting,) = running.scheduler.profiles["default-scheduler"].plugins["Hold"].handle.waiting
            waiting.allow("Hold")
            await asyncio.sleep(2)
            put(embedded, topology(T1))
            put(embedded, lsr("other"))
            await asyncio.sleep(2)
            return cpus_of(embedded, "held"), cpus_of(embedded, "other")

    assert run(scenario()) == ("0-3", "8-11")


def test_a_policy_that_comes_later():
    """Pods that were placed without one have no amounts of NUMA nodes; their CPUs count all the same."""

    async def scenario():
        async with cluster(node(cpu="16"), topology(T1, ZONES)) as (embedded, running):
            put(embedded, lsr("before", cpu="6", memory="1Gi"))
            await asyncio.sleep(2)
            replace(embedded, node(cpu="16", numa_topology_policy="SingleNUMANode"))
            await asyncio.sleep(1)
            for name in ("first", "second"):
                put(embedded, lsr(name, cpu="4", memory="1Gi"))
                await asyncio.sleep(2)
            seen = [cpus_of(embedded, name) for name in ("before", "first", "second")]
            replace(embedded, node(cpu="16"))
            put(embedded, lsr("third", cpu="2", memory="1Gi"))
            await asyncio.sleep(2)
            return seen, cpus_of(embedded, "third"), len(held(running)[0])

    seen, third, count = run(scenario())
    assert seen == ["0-5", "8-11", "12-15"]
    assert (third, count) == ("6-7", 16)


# --- resizes, nominations --------------------------------------------------------------------------------------


def test_a_pinned_pod_that_is_resized_keeps_its_cpus():
    """They are what its annotation says; what changes is what its node has left by the sums."""

    async def scenario():
        async with cluster(node(cpu="16"), topology(T1)) as (embedded, running):
            put(embedded, lsr("pinned", cpu="8"))
            await asyncio.sleep(2)
            put(embedded, lsr("waits", cpu="12", qos="LS"))
            await asyncio.sleep(15)
            seen = [where(embedded, "waits")]
            stored = embedded.get("Pod", "pinned")
            (container,) = stored["spec"]["containers"]
            smaller = {**container, "resources": {"requests": {"cpu": "4"}}}
            replace(embedded, {**stored, "spec": {**stored["spec"], "containers": [smaller]}})
            await asyncio.sleep(5)
            return [*seen, where(embedded, "waits"), cpus_of(embedded, "pinned"), held(running)[0]]

    assert run(scenario()) == [None, "m1", "0-7", set(range(8))]


def test_nominated_pods_do_not_hold_cpus_and_keep_their_room():
    """A nominated pod has no CPUs yet. Its request counts, so that a pod of lower priority does not take its room."""

    async def scenario():
        nominated = lsr("nominated", cpu="12", priority=9900)
        nominated["status"] = {"phase": "Pending", "nominatedNodeName": "m1"}
        nominated = with_(nominated, schedulingGates=[{"name": "example.com/wait"}])
        async with cluster(node(cpu="16"), topology(T1), nominated) as (embedded, running):
            put(embedded, lsr("small", cpu="4", spec=WHOLE))
            put(embedded, lsr("large", cpu="8", spec=WHOLE))
            await asyncio.sleep(10)
            return cpus_of(embedded, "small"), held(running)[0]

    small, books = run(scenario())
    assert small == "0-3"
    assert {0, 1, 2, 3} <= books


# --- bindings ----------------------------------------------------------------------------------------------------


def test_both_annotations_are_set_by_the_binding():
    path, writes = "/api/v1/namespaces/default/pods/p", []

    async def watched(call, proceed):
        if call.path.startswith(path) and call.method != "GET":
            writes.append((call.path.removeprefix(path), json.loads(call.body)))
        return await proceed()

    async def scenario():
        async with cluster(node(), topology(T1), fault=watched) as (embedded, _):
            put(embedded, lsr())
            await asyncio.sleep(3)
            return embedded.get("Pod", "p")["metadata"]["annotations"]

    annotations = run(scenario())
    expected = {
        "scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}',
        "scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy":"FullPCPUs"}',
    }
    assert annotations == expected
    found = [(rest, body["metadata"].get("annotations")) for rest, body in writes if rest != "/status"]
    assert found == [("/binding", expected)], "the agent of the node sees the pod with them, never without"


class Fails:
    """The first so many writes of a kind are answered with this status."""

    def __init__(self, suffix, status, times):
        self.suffix, self.status, self.times = suffix, status, times

    async def __call__(self, call, proceed):
        if call.method in ("POST", "PATCH") and call.path.endswith(self.suffix) and self.times:
            self.times -= 1
            reason = {409: "Conflict", 422: "Invalid", 500: "InternalError", 403: "Forbidden"}[self.status]
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": self.status}
            return self.status, {"content-type": "application/json"}, json.dumps({**body, "message": "no"}).encode()
        return await proceed()


@pytest.mark.parametrize("status", [409, 422, 403])
def test_what_was_reserved_is_given_back_when_a_binding_fails(status):
    """And chosen anew: meanwhile others may have taken it."""

    async def scenario():
        async with cluster(node(), topology(T1), fault=Fails("/binding", status, 1)) as (embedded, running):
            put(embedded, lsr())
            await asyncio.sleep(0.3)
            put(embedded, lsr("quick", cpu="2"))
            await asyncio.sleep(60)
            given = [cpusets.ids_of(embedded.get("Pod", name)) for name in ("p", "quick")]
            return given, held(running)[0], where(embedded, "p")

    given, books, placed = run(scenario())
    assert placed == "m1"
    assert [len(cpus) for cpus in given] == [4, 2]
    assert not given[0] & given[1]
    assert books == given[0] | given[1]


def test_a_pod_that_is_deleted_while_its_binding_is_under_way():
    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(20)
        return await proceed()

    async def scenario():
        async with cluster(node(), topology(T1), fault=slow) as (embedded, running):
            put(embedded, lsr("short"))
            await asyncio.sleep(5)
            seen = [len(held(running)[0])]
            remove(embedded, embedded.get("Pod", "short"))
            await asyncio.sleep(60)
            return [*seen, len(held(running)[0])]

    assert run(scenario()) == [4, 0]


# --- other profiles, other schedulers ---------------------------------------------------------------------------------


def test_two_profiles_share_the_nodes():
    """Each binds by its own arguments; none gives a CPU that the other one gave."""
    most = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    other = profile({"defaultCPUBindPolicy": "SpreadByPCPUs", "numaScoringStrategy": most}, "other-scheduler")
    document = configuration()
    document["profiles"].append(other)

    async def scenario():
        things = node(cpu="16"), topology(T1, ZONES)
        async with cluster(*things, document=document) as (embedded, running):
            for at in range(6):
                scheduler = ("default-scheduler", "other-scheduler")[at % 2]
                put(embedded, with_(lsr(f"p{at}", cpu="2"), schedulerName=scheduler))
                await asyncio.sleep(2)
            numa = {"numaTopologyPolicy": "SingleNUMANode"}
            put(embedded, with_(lsr("aligned", cpu="2", numa=numa), schedulerName="other-scheduler"))
            await asyncio.sleep(2)
            specs = [
                json.loads(
                    embedded.get("Pod", f"p{at}")["metadata"]["annotations"]["scheduling.koordinator.sh/resource-spec"]
                )
                for at in range(2)
            ]
            names = [*(f"p{at}" for at in range(6)), "aligned"]
            return [cpusets.ids_of(embedded.get("Pod", name)) for name in names], specs, held(running)[0]

    given, specs, books = run(scenario())
    assert [len(cpus) for cpus in given] == [2] * 7
    assert sum(map(len, given)) == len(set().union(*given)) == len(books)
    assert [spec["preferredCPUBindPolicy"] for spec in specs] == ["FullPCPUs", "SpreadByPCPUs"]
    assert [len({cpu // 2 for cpu in cpus}) for cpus in given[:4]] == [1, 2, 1, 2]


def test_pods_of_another_scheduler_count_by_their_annotation():
    async def scenario():
        async with cluster(node(), topology(T1)) as (embedded, running):
            foreign = with_(holder("foreign", "0-3,8-13", cpu="10"), schedulerName="someone-else")
            put(embedded, foreign)
            await asyncio.sleep(1)
            put(embedded, lsr())
            waits = with_(lsr("waits", cpu="2"), schedulerName="someone-else")
            waits["metadata"]["annotations"]["scheduling.koordinator.sh/resource-status"] = '{"cpuset":"14-15"}'
            put(embedded, waits)
            await asyncio.sleep(5)
            seen = [cpus_of(embedded, "p"), where(embedded, "waits"), sorted(held(running)[0])]
            replace(embedded, with_(waits, nodeName="m1"))
            await asyncio.sleep(1)
            seen.append(sorted(held(running)[0] - set(range(14))))
            remove(embedded, foreign)
            await asyncio.sleep(1)
            return [*seen, sorted(held(running)[0])]

    first, waits, before, then, last = run(scenario())
    assert (first, waits) == ("4-7", None)
    assert before == list(range(14)), "what a pod without a node says counts nowhere"
    assert then == [14, 15]
    assert last == [4, 5, 6, 7, 14, 15]


def test_a_status_that_a_user_wrote_on_a_pending_pod_is_replaced():
    """Without a designation it means nothing: the pod gets what is free."""

    async def scenario():
        thing = lsr(status={"cpuset": "0-3"})
        async with cluster(node(), topology(T1), holder("h", "0-3", cpu="4")) as (embedded, running):
            put(embedded, thing)
            await asyncio.sleep(3)
            return cpus_of(embedded, "p"), len(held(running)[0])

    assert run(scenario()) == ("8-11", 8)


# --- many at once --------------------------------------------------------------------------------------------------


class Refuses:
    """Some bindings and patches are answered with a conflict, and some take long."""

    def __init__(self, seed):
        self.rng = Random(seed)

    async def __call__(self, call, proceed):
        if call.method in ("POST", "PATCH") and "/pods/" in call.path and not call.path.endswith("/status"):
            await asyncio.sleep(self.rng.choice([0, 0, 0.1, 3]))
            if self.rng.random() < 0.2:
                body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}
                return 409, {"content-type": "application/json"}, json.dumps({**body, "message": "no"}).encode()
        return await proceed()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_cpu_is_given_twice_in_a_burst(seed):
    """Pods come at once and go, bindings fail or take long, reports change: no CPU has two pods, as the books say."""
    rng = Random(seed)

    async def scenario():
        policies = {}, {"numa_topology_policy": "SingleNUMANode"}, {"cpu_bind_policy": "FullPCPUsOnly"}
        things = [named(node(cpu="16", **labels), f"n{at}") for at, labels in enumerate(policies)]
        things += [named(topology(T1, ZONES), f"n{at}") for at in range(3)]
        async with cluster(*things, fault=Refuses(seed)) as (embedded, running):
            Kubelet(embedded)
            most, alive = 0, []
            for at in range(40):
                for number in range(rng.randrange(4)):
                    name = f"p{at}-{number}"
                    alive.append(name)
                    priority = rng.choice([9000, 9000, 9500])
                    spec = rng.choice([None, WHOLE])
                    put(embedded, lsr(name, cpu=rng.choice("1224"), memory="1Gi", priority=priority, spec=spec))
                if alive and rng.random() < 0.6:
                    stored = embedded.get("Pod", alive.pop(rng.randrange(len(alive))))
                    if stored is not None:
                        remove(embedded, stored)
                if rng.random() < 0.2:
                    memory = f"{rng.randint(40, 64)}Gi"
                    replace(embedded, named(topology(T1, [("8", memory)] * 2), f"n{rng.randrange(3)}"))
                await asyncio.sleep(rng.choice([0.1, 1, 4]))
                given = bound_cpus(embedded)
                assert len(given) == len(set(given)), "a CPU for two pods"
                most = max(most, len(given))
            await asyncio.sleep(60)
            given = bound_cpus(embedded)
            books = [(f"n{at}", cpu) for at in range(3) for cpu in held(running, f"n{at}")[0]]
            return most, sorted(given), sorted(books)

    most, given, books = run(scenario())
    assert given == books
    assert most > 16


def bound_cpus(embedded):
    """(node, CPU) of all pods on nodes."""
    return [
        (thing["spec"]["nodeName"], cpu)
        for thing in embedded.registry.list(embedded.resource("Pod"))
        if thing["spec"].get("nodeName")
        for cpu in cpusets.ids_of(thing)
    ]
