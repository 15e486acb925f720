"""With preemption, quotas, loads, Permit, failing bindings, Devices that change meanwhile, other profiles."""

import asyncio
import json
from random import Random

import pytest

from koordsched.framework.interface import Permit
from koordsched.framework.status import Code, Status
from tests.plugins.deviceshare.machines import bound, device, g8, gpu, m2, nic, node, pod, used
from tests.plugins.deviceshare.naive.amounts import read
from tests.plugins.deviceshare.naive.request import CORE, MEMORY, RATIO, RDMA
from tests.plugins.deviceshare.running import cluster, condition_of, given, held, put, remove, replace, where
from tests.plugins.deviceshare.world import ALLOCATED, DEVICES, PROFILE, configuration, profile
from tests.plugins.elasticquota import objects as quotas
from tests.plugins.elasticquota import world as quotaworld
from tests.plugins.loadaware.objects import metric
from tests.plugins.nodenumaresource.test_together import Fails, Hold, Refuses
from tests.plugins.objects import spread
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import WALL_EPOCH, run

WHOLE = {"gpu": 100}


def names_of(embedded):
    """Of the pods that there are."""
    return {thing["metadata"]["name"] for thing in embedded.registry.list(embedded.resource("Pod"))}


def minors(running, name="n"):
    """Those in use by the books."""
    return {minor for _, minor in held(running, name)}


def waiting(running):
    """The pods that wait on Permit."""
    (plugin,) = {each.plugins["Hold"] for each in running.scheduler.profiles.values()}
    return list(plugin.handle.waiting)


def with_(thing, **spec):
    """A pod with more in its spec."""
    return {**thing, "spec": {**thing["spec"], **spec}}


# --- preemption ---------------------------------------------------------------------------------------------


def test_a_pod_preempts_for_gpus_and_gets_them():
    async def scenario():
        async with cluster(*g8()) as (embedded, running):
            Kubelet(embedded)
            for name, count, priority in (("low", 4, 0), ("high", 4, 50)):
                put(embedded, pod(name, priority=priority, gpu=100 * count))
                await asyncio.sleep(1)
            before = given(embedded, "low"), given(embedded, "high")
            put(embedded, pod("urgent", priority=20, gpu=200))
            await asyncio.sleep(60)
            return before, names_of(embedded), given(embedded, "urgent"), minors(running)

    before, exists, urgent, books = run(scenario())
    assert before == ({"gpu": [0, 1, 2, 3]}, {"gpu": [4, 5, 6, 7]})
    assert exists == {"high", "urgent"}
    assert urgent == {"gpu": [0, 1]}
    assert books == {0, 1, 4, 5, 6, 7}


def test_gpus_of_victims_are_kept_for_the_preemptor():
    """While the victim goes, a pod of lower priority does not take what it leaves, by its nomination."""

    async def scenario():
        async with cluster(*m2()) as (embedded, _):
            Kubelet(embedded)
            put(embedded, pod("low", priority=0, gpu=200))
            await asyncio.sleep(1)
            put(embedded, pod("urgent", priority=50, gpu=200))
            await asyncio.sleep(0.2)
            put(embedded, pod("late", priority=10, gpu=100))
            await asyncio.sleep(60)
            return given(embedded, "urgent"), where(embedded, "late")

    assert run(scenario()) == ({"gpu": [0, 1]}, None)


def test_virtual_functions_of_victims_are_given_again():
    wanted = {"rdma": 1, "hints": {"rdma": {"vfSelector": {}}}}

    async def scenario():
        async with cluster(node(), device(nic(0, bus="0000:1f:00", functions=1))) as (embedded, _):
            Kubelet(embedded)
            put(embedded, pod("low", priority=0, **wanted))
            await asyncio.sleep(1)
            put(embedded, pod("urgent", priority=50, **wanted))
            await asyncio.sleep(60)
            text = embedded.get("Pod", "urgent")["metadata"]["annotations"][ALLOCATED]
            return names_of(embedded), json.loads(text)["rdma"][0]["extension"]["vfs"][0]["busID"]

    assert run(scenario()) == ({"urgent"}, "0000:1f:00.2")


# --- quotas, loads, spreading ---------------------------------------------------------------------------------


def in_quota(thing, quota):
    thing["metadata"]["labels"] |= quotas.pod("x", {"cpu": 1}, quota)["metadata"]["labels"]
    return thing


def limits(**amounts):
    return {"cpu": 64, "memory": "256Gi", **{name.replace("__", "/"): n for name, n in amounts.items()}}


def offering(things, amount):
    """The same, nodes offering so much of GPUs: quotas share out what there is."""
    sizes = {"koordinator.sh/gpu": str(amount)}
    return [
        {**thing, "status": {**thing["status"], "allocatable": {**thing["status"]["allocatable"], **sizes}}}
        if thing["kind"] == "Node"
        else thing
        for thing in things
    ]


ONLY_QUOTAS_PREEMPT = {"more": {"ElasticQuota": {}}, "postFilter": quotaworld.ONLY_QUOTA_PREEMPTS}


def test_with_quotas_of_devices():
    """What devices refuse uses no quota; what the quota refuses holds no device."""

    async def scenario():
        q = quotas.quota("q", limits(**{"koordinator.sh__gpu": 300}), namespace="default")
        async with cluster(*offering(g8(), 800), used(0, 1, 2, 3, 4, 5), q, **ONLY_QUOTAS_PREEMPT) as (
            embedded,
            running,
        ):
            books = running.scheduler.profiles[PROFILE].plugins["ElasticQuota"].books

            def in_use():
                return books.quota("q").used.get("koordinator.sh/gpu", 0) // 10**9, len(minors(running))

            seen = []
            for name, count in (("too-many", 3), ("one", 1), ("over-quota", 4), ("another", 1)):
                put(embedded, in_quota(pod(name, gpu=100 * count), "q"))
                await asyncio.sleep(5)
                seen.append(in_use())
            return seen, [where(embedded, name) for name in ("too-many", "one", "over-quota", "another")]

    assert run(scenario()) == ([(0, 6), (100, 7), (100, 7), (200, 8)], [None, "n", None, "n"])


def test_a_pod_preempts_within_its_quota_for_gpus():
    """The quota has room for one of them; the victim is the one of the quota, and its GPU goes to the preemptor."""

    async def scenario():
        both = [quotas.quota(name, limits(**{"koordinator.sh__gpu": 100}), namespace="default") for name in "qr"]
        async with cluster(*offering(m2(), 200), *both, **ONLY_QUOTAS_PREEMPT) as (embedded, running):
            Kubelet(embedded)
            for name, priority, quota in (("other", 0, "r"), ("low", 10, "q"), ("urgent", 50, "q")):
                put(embedded, in_quota(pod(name, priority=priority, gpu=100), quota))
                await asyncio.sleep(30)
            return names_of(embedded), given(embedded, "other"), given(embedded, "urgent"), minors(running)

    assert run(scenario()) == ({"other", "urgent"}, {"gpu": [0]}, {"gpu": [1]}, {0, 1})


def test_quotas_count_old_names_as_the_new_ones():
    async def scenario():
        q = quotas.quota("q", limits(**{"koordinator.sh__gpu": 100}), namespace="default")
        async with cluster(*offering(m2(), 200), q, **ONLY_QUOTAS_PREEMPT) as (embedded, _):
            for name in ("first", "second"):
                thing = in_quota(pod(name, gpu=100), "q")
                text = json.dumps(thing).replace("koordinator.sh/gpu", "kubernetes.io/gpu")
                put(embedded, json.loads(text))
                await asyncio.sleep(5)
            return where(embedded, "first"), where(embedded, "second")

    assert run(scenario()) == ("n", None)


def test_with_loads():
    """The node that loads prefer has no GPU left: the other one is taken."""

    async def scenario():
        things = [thing for name in ("idle", "half", "busy") for thing in m2(name)]
        loads = [
            metric(name, (cpu, "1Gi"), at=WALL_EPOCH + 500)
            for name, cpu in (("idle", "0"), ("half", "20"), ("busy", "60"))
        ]
        full = used(0, 1, node="idle")
        async with cluster(*things, *loads, full, more={"LoadAwareScheduling": {}}) as (embedded, _):
            put(embedded, pod("p", gpu=100))
            put(embedded, pod("large", gpu=200))
            await asyncio.sleep(10)
            return where(embedded, "p"), where(embedded, "large"), condition_of(embedded, "large")[1]

    placed, large, message = run(scenario())
    assert (placed, large) == ("half", None)
    assert message.startswith("0/3 nodes are available: 1 node(s) cpu usage exceed threshold, 2 Insufficient gpu dev")


def test_with_scarce_resources():
    """Pods that want no GPU leave nodes that have some to others."""

    async def scenario():
        rich, poor = node("rich"), node("poor")
        rich["status"] = {**rich["status"], "allocatable": {**rich["status"]["allocatable"], CORE: "200", RATIO: "200"}}
        small = {name: ("4" if name == "cpu" else n) for name, n in poor["status"]["allocatable"].items()}
        poor["status"] = {**poor["status"], "allocatable": small}
        more = {"ScarceResourceAvoidance": {"resources": [CORE, RATIO]}}
        async with cluster(rich, poor, m2("rich")[1], more=more, fit=True) as (embedded, _):
            put(embedded, pod("plain", cpu=1))
            put(embedded, pod("wants", core=100, ratio=100))
            await asyncio.sleep(5)
            return where(embedded, "plain"), where(embedded, "wants")

    assert run(scenario()) == ("poor", "rich")


def test_with_topology_spread_and_affinity():
    """Pods that must spread go where GPUs are, one per node; what does not spread waits."""

    async def scenario():
        nodes = []
        for name in ("a", "b", "c"):
            machine, report = m2(name)
            machine["metadata"]["labels"]["kubernetes.io/hostname"] = name
            nodes += [machine, report]
        full = used(0, 1, node="b")
        async with cluster(*nodes, full) as (embedded, _):
            constraints = [spread("kubernetes.io/hostname", 1, {"app": "web"})]
            for at in range(3):
                thing = pod(f"p{at}", labels={"app": "web"}, gpu=100)
                put(embedded, with_(thing, topologySpreadConstraints=constraints))
                await asyncio.sleep(5)
            before = [where(embedded, f"p{at}") for at in range(3)]
            remove(embedded, full)
            await asyncio.sleep(15)
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
            beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            put(embedded, with_(pod("two", gpu=200), affinity=beside))
            put(embedded, with_(pod("beside", gpu=100), affinity=beside))
            await asyncio.sleep(5)
            return (
                before,
                [where(embedded, f"p{at}") for at in range(3)],
                where(embedded, "two"),
                given(embedded, "beside"),
            )

    before, after, two, beside = run(scenario())
    assert sorted(before[:2]) == ["a", "c"]
    assert before[2] is None
    assert after == [*before[:2], "b"]
    assert two is None
    assert len(beside["gpu"]) == 1


# --- Permit, and what changes meanwhile ------------------------------------------------------------------------


class Rejects(Permit):
    """Lets no pod pass."""

    name = "Rejects"

    def __init__(self, args, handle):
        pass

    def permit(self, cycle, pod, row):
        return Status(Code.UNSCHEDULABLE, ("not now",)), 0.0


def test_a_pod_that_permit_refuses_gives_its_devices_back():
    async def scenario():
        async with cluster(*g8(), plugins=[Rejects]) as (embedded, running):
            put(embedded, pod(gpu=200, rdma=1, hints={"rdma": {"vfSelector": {}}}))
            await asyncio.sleep(30)
            columns = running.scheduler.profiles[PROFILE].plugins[DEVICES].columns
            return where(embedded, "p"), held(running), columns.functions.data.any()

    assert run(scenario()) == (None, {}, False)


def meanwhile(change, *, allow, objects=None, wanted=WHOLE, plugins=(Hold,)):
    """What happens to a pod that waits on Permit, with a change before it may go on: (node, given, in use)."""

    async def scenario():
        async with cluster(*(objects or m2()), plugins=list(plugins)) as (embedded, running):
            put(embedded, pod("held", **wanted))
            await asyncio.sleep(2)
            change(embedded)
            await asyncio.sleep(1)
            for each in waiting(running):
                each.allow("Hold") if allow else each.reject("Hold", "let go")
            await asyncio.sleep(3)
            table = running.scheduler.cluster.table
            books = {name: minors(running, name) for name in sorted(table.row_of)}
            there = "held" in names_of(embedded)
            return there and where(embedded, "held"), there and given(embedded, "held"), books

    return run(scenario())


def fewer():
    return device(gpu(1, "8Gi"))


def sick():
    return device(gpu(0, "8Gi", health=False), gpu(1, "8Gi"))


@pytest.mark.parametrize("allow", [True, False], ids=["bound", "rejected"])
@pytest.mark.parametrize("report", [fewer, sick])
def test_a_device_that_changes_while_a_pod_waits(report, allow):
    """It is bound with what it was given, and what it holds is counted; or gives it back."""
    placed, devices, books = meanwhile(lambda embedded: replace(embedded, report()), allow=allow)
    assert (placed, devices) == (("n", {"gpu": [0]}) if allow else (None, None))
    assert books == {"n": {0} if allow else set()}


def test_a_device_that_goes_while_a_pod_waits():
    """PreBind has to name devices by their ids: it fails, and the pod gives back what it had."""
    placed, devices, books = meanwhile(lambda embedded: remove(embedded, m2()[1]), allow=True)
    assert (placed, devices, books) == (None, None, {"n": set()})


def test_a_device_that_goes_and_comes_while_a_pod_waits():
    def change(embedded):
        remove(embedded, m2()[1])
        put(embedded, device(*({**gpu(minor, "8Gi"), "id": f"new-{minor}"} for minor in (0, 1))))

    assert meanwhile(change, allow=True) == ("n", {"gpu": [0]}, {"n": {0}})


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("allow", [True, False])
def test_a_node_that_goes_while_a_pod_waits_on_it(allow, back):
    """Another node gets its row: what is given back does not come off that one's books."""

    def change(embedded):
        remove(embedded, node())
        for thing in [*m2("other"), used(0, node="other")]:
            put(embedded, thing)
        if back:
            put(embedded, node())
            replace(embedded, device(gpu(0, "8Gi"), gpu(1, "8Gi"), gpu(2, "8Gi")))

    placed, devices, books = meanwhile(change, allow=allow)
    on_it = set((devices or {}).get("gpu", ()))
    for name, found in books.items():
        expected = ({0} if name == "other" else set()) | (on_it if name == placed else set())
        assert found == expected, name
    assert "other" in books


def test_a_pod_that_is_deleted_while_it_waits_gives_its_devices_back():
    placed, _, books = meanwhile(lambda embedded: remove(embedded, embedded.get("Pod", "held")), allow=False)
    assert (placed, books) == (False, {"n": set()})


def test_a_pod_of_the_same_name_comes_before_the_old_one_is_forgotten():
    """Of a StatefulSet: what the new one holds is not lost with the old one."""

    async def scenario():
        async with cluster(*m2()) as (embedded, running):
            put(embedded, pod("web-0", gpu=100))
            await asyncio.sleep(2)
            remove(embedded, embedded.get("Pod", "web-0"))
            again = pod("web-0", gpu=200)
            again["metadata"]["uid"] = "another"
            put(embedded, again)
            await asyncio.sleep(10)
            return given(embedded, "web-0"), minors(running)

    assert run(scenario()) == ({"gpu": [0, 1]}, {0, 1})


def test_a_pod_that_is_confirmed_with_another_annotation():
    """Something else wrote it: what it says counts from then on."""

    async def scenario():
        async with cluster(*m2()) as (embedded, running):
            put(embedded, pod("p", gpu=100))
            await asyncio.sleep(2)
            stored = embedded.get("Pod", "p")
            text = json.dumps({"gpu": [{"minor": 1, "resources": {CORE: "30", RATIO: "30"}}]})
            metadata = {**stored["metadata"], "annotations": {ALLOCATED: text}}
            replace(embedded, {**stored, "metadata": metadata})
            await asyncio.sleep(1)
            seen = [minors(running)]
            replace(embedded, {**stored, "metadata": {**stored["metadata"], "annotations": {}}})
            await asyncio.sleep(1)
            return [*seen, minors(running)]

    assert run(scenario()) == [{1}, set()]


# --- bindings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["/binding", "/pods/p"], ids=["binding", "patch"])
@pytest.mark.parametrize("status", [409, 422, 403])
def test_what_was_reserved_is_given_back_when_a_write_fails(suffix, status):
    """And chosen anew: meanwhile others may have taken it."""

    async def scenario():
        async with cluster(*g8(), fault=Fails(suffix, status, 1)) as (embedded, running):
            put(embedded, pod("p", gpu=400))
            await asyncio.sleep(0.3)
            put(embedded, pod("quick", gpu=200))
            await asyncio.sleep(60)
            return given(embedded, "p"), given(embedded, "quick"), minors(running), where(embedded, "p")

    slow, quick, books, placed = run(scenario())
    assert placed == "n"
    assert (len(slow["gpu"]), len(quick["gpu"])) == (4, 2)
    assert not set(slow["gpu"]) & set(quick["gpu"])
    assert books == {*slow["gpu"], *quick["gpu"]}


def test_a_failed_binding_writes_no_devices():
    """The annotation comes with the binding. The second node has no Device: nothing is given there."""

    async def scenario():
        async with cluster(*m2(), fault=Fails("/binding", 409, 1)) as (embedded, running):
            put(embedded, pod("p", gpu=100))
            await asyncio.sleep(0.5)
            written = given(embedded, "p")
            remove(embedded, node())
            put(embedded, node("bare"))
            await asyncio.sleep(60)
            return written, where(embedded, "p"), given(embedded, "p"), minors(running, "bare")

    assert run(scenario()) == (None, "bare", None, set())


def test_a_pod_that_is_deleted_while_its_binding_is_under_way():
    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(20)
        return await proceed()

    async def scenario():
        async with cluster(*m2(), fault=slow) as (embedded, running):
            put(embedded, pod("short", gpu=100))
            await asyncio.sleep(5)
            seen = [minors(running)]
            remove(embedded, embedded.get("Pod", "short"))
            await asyncio.sleep(60)
            return [*seen, minors(running)]

    assert run(scenario()) == [{0}, set()]


# --- profiles ---------------------------------------------------------------------------------------------------


def of_profile(name, thing):
    return with_(thing, schedulerName=name)


def test_profiles_with_other_arguments_share_the_devices():
    """Each chooses by its own strategy; none gives a GPU that the other one gave."""
    most = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": RATIO, "weight": 1}]}}
    document = configuration(profile(numa=False), profile(most, name="packing", numa=False))
    machines = [node(), device(*(gpu(minor, "8Gi") for minor in range(4)))]
    half = {"core": 50, "ratio": 50}

    async def scenario():
        async with cluster(*machines, document=document) as (embedded, running):
            seen = []
            for at, name in enumerate(["packing", PROFILE, PROFILE, "packing", "packing", PROFILE]):
                put(embedded, of_profile(name, pod(f"p{at}", **half)))
                await asyncio.sleep(2)
                seen += given(embedded, f"p{at}")["gpu"]
            return seen, {minor: amounts[0] for (_, minor), amounts in held(running).items()}

    seen, books = run(scenario())
    assert books == {minor: 50 * seen.count(minor) for minor in set(seen)}
    assert all(amount <= 100 for amount in books.values())
    assert seen == [0, 1, 2, 0, 1, 3]


def test_a_profile_without_the_plugin():
    """Its pods are given nothing; those that say what they hold count all the same."""
    document = configuration(profile(numa=False), profile(name="plain", devices=False, numa=False))

    async def scenario():
        foreign = of_profile("plain", bound(pod(), "foreign", gpu=[(0, {"core": 100, "ratio": 100})]))
        async with cluster(*m2(), foreign, document=document) as (embedded, running):
            put(embedded, of_profile("plain", pod("unaware", gpu=100)))
            await asyncio.sleep(2)
            put(embedded, pod("aware", gpu=100))
            await asyncio.sleep(2)
            put(embedded, pod("late", gpu=100))
            await asyncio.sleep(20)
            seen = [where(embedded, "unaware"), given(embedded, "unaware"), given(embedded, "aware"), minors(running)]
            before = where(embedded, "late")
            remove(embedded, foreign)
            await asyncio.sleep(2)
            return seen, before, given(embedded, "late")

    seen, before, late = run(scenario())
    assert seen == ["n", None, {"gpu": [1]}, {0, 1}]
    assert before is None
    assert late == {"gpu": [0]}


def test_templates_of_two_profiles():
    """Each has a ConfigMap of its own; a change of one wakes the pods of its profile alone."""
    place = {"configMapNamespace": "default", "matchedResources": ["koordinator.sh/gpu-memory"]}
    parts = [
        profile(
            {"gpuSharedResourceTemplatesConfig": {**place, "configMapName": name}},
            name=name,
            numa=False,
        )
        for name in ("one", "two")
    ]
    machine = node(labels={"node.koordinator.sh/gpu-vendor": "v", "node.koordinator.sh/gpu-model": "m"})

    async def scenario():
        async with cluster(machine, m2()[1], document=configuration(*parts)) as (embedded, running):
            for name in ("one", "two"):
                put(embedded, of_profile(name, pod(f"p-{name}", memory=1 << 30)))
            await asyncio.sleep(15)
            before = [where(embedded, f"p-{name}") for name in ("one", "two")]
            data = {"data.yaml": "v-m: {small: {koordinator.sh/gpu-memory: 1Gi}}"}
            metadata = {"name": "one", "namespace": "default"}
            put(embedded, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
            await asyncio.sleep(15)
            after = [where(embedded, f"p-{name}") for name in ("one", "two")]
            return before, after, running.attempts["default/p-two"]

    assert run(scenario()) == ([None, None], ["n", None], 1)


# --- many at once -------------------------------------------------------------------------------------------------

WISHES = (
    {"gpu": 100},
    {"gpu": 200},
    {"core": 30, "ratio": 30},
    {"memory": 30 << 30},
    {"gpu": 100, "rdma": 1, "joint": {"deviceTypes": ["gpu", "rdma"]}, "hints": {"rdma": {"vfSelector": {}}}},
    {"rdma": 50},
)


@pytest.mark.parametrize("improved", [False, True], ids=["default", "improved"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_given_twice_in_a_burst(seed, improved):
    """Pods come at once and go, bindings fail or take long: no device is over-committed, as the books say."""
    rng = Random(seed)

    async def scenario():
        things = [*g8("a"), *g8("b", numa_policy="SingleNUMANode"), *g8("c", numa_policy="BestEffort")]
        args = {"improvedAllocation": improved}
        async with cluster(*things, fault=Refuses(seed), args=args) as (embedded, running):
            Kubelet(embedded)
            most, alive = 0, []
            for at in range(40):
                for number in range(rng.randrange(4)):
                    name = f"p{at}-{number}"
                    alive.append(name)
                    put(embedded, pod(name, priority=rng.choice([0, 0, 50]), **rng.choice(WISHES)))
                if alive and rng.random() < 0.6:
                    stored = embedded.get("Pod", alive.pop(rng.randrange(len(alive))))
                    if stored is not None:
                        remove(embedded, stored)
                await asyncio.sleep(rng.choice([0.1, 1, 4]))
                total = on_devices(embedded)
                assert all(amount <= 100 for (_, _, _, name), amount in total.items() if name in LIMITED), total
                assert all(amount <= 80 << 30 for (*_, name), amount in total.items() if name == MEMORY and improved)
                functions = functions_of(embedded)
                assert len(functions) == len(set(functions))
                most = max(most, len(total))
            await asyncio.sleep(60)
            there = {(node_name, kind, minor) for node_name, kind, minor, _ in on_devices(embedded)}
            return most, there, {(name, *key) for name in "abc" for key in held(running, name)}

    most, there, books = run(scenario())
    assert there == books
    assert most > 16


LIMITED = (CORE, RATIO, RDMA)


def entries(embedded):
    """(node, type, entry) of what pods on nodes hold."""
    for thing in embedded.registry.list(embedded.resource("Pod")):
        text = thing["metadata"].get("annotations", {}).get(ALLOCATED)
        if thing["spec"].get("nodeName") and text is not None:
            for kind, listed in json.loads(text).items():
                for entry in listed:
                    yield thing["spec"]["nodeName"], kind, entry


def on_devices(embedded):
    """{(node, type, minor, resource): amount} of what pods on nodes hold."""
    total = {}
    for name, kind, entry in entries(embedded):
        for resource, amount in read(entry["resources"]).items():
            key = name, kind, entry["minor"], resource
            total[key] = total.get(key, 0) + amount
    return total


def functions_of(embedded):
    """(node, bus id) of the virtual functions that pods on nodes hold."""
    return [
        (name, function["busID"])
        for name, _, entry in entries(embedded)
        for function in (entry.get("extension") or {}).get("vfs", ())
    ]
