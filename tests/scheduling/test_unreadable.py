"""Resources that must not be read: what waits for them, what goes on, who is told, and that it ends."""

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from koordsched import config
from koordsched.cluster import builtinkinds as kinds
from koordsched.plugins import CATALOG
from koordsched.scheduling.unreadable import missing_rule, resource_name
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term
from tests.plugins.volumes.objects import bound, storage_class
from tests.scheduling.serving import embedded_with_users, serving
from tests.virtualtime import run
from tests.waiting import until

ROOT = Path(__file__).parents[2]
STORAGE = (
    "persistentvolumes",
    "persistentvolumeclaims",
    "storageclasses.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csidrivers.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
)
PREFERENCES = ("services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps")
WAITS = "waiting: the scheduler is not allowed to read "


def refused(embedded, name):
    """The message of PodScheduled=False, "" if the pod does not carry it."""
    for condition in embedded.get("Pod", name)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition["message"]
    return ""


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def world(*forbidden):
    embedded = Embedded()
    embedded.server.forbidden.update(forbidden)
    embedded.insert(node("alder", cpu="4"))
    embedded.insert(storage_class())
    for thing in bound("c"):
        embedded.insert(thing)
    return embedded


def with_claim(name):
    return pod(name, container(cpu="100m"), volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])


@asynccontextmanager
async def scheduling(embedded, configuration=None):
    async with scheduler_on(embedded, configuration) as running:
        yield running.scheduler


@pytest.mark.parametrize("resource", STORAGE)
def test_pods_with_volumes_wait_for_storage_and_others_do_not(resource, caplog):
    async def main():
        embedded = world(resource)
        async with scheduling(embedded) as scheduler:
            watched = {resource_name(path) for path in scheduler.watches.reflectors}
            assert resource in watched
            embedded.insert(pod("plain", container(cpu="1")))
            embedded.insert(with_claim("stateful"))
            await asyncio.sleep(10)
            assert node_of(embedded, "plain") == "alder"
            assert node_of(embedded, "stateful") is None
            assert refused(embedded, "stateful") == WAITS + resource
            assert list(scheduler.watches.obstacles()) == [path_of(scheduler, resource)]
            embedded.server.forbidden.clear()
            await asyncio.sleep(60)
            assert node_of(embedded, "stateful") == "alder"
            assert scheduler.watches.obstacles() == {}

    with caplog.at_level(logging.WARNING):
        run(main())
    (line,) = [r.getMessage() for r in caplog.records if "not allowed to read" in r.getMessage()]
    group = resource.partition(".")[2] or '""'
    rule = f"{{apiGroups: [{group}], resources: [{resource.partition('.')[0]}], verbs: [list, watch]}}"
    end = f"The role of the scheduler lacks the rule {rule}; until that is added, pods with volumes wait"
    assert line.endswith(end)


def path_of(scheduler, resource):
    return next(path for path in scheduler.watches.reflectors if resource_name(path) == resource)


@pytest.mark.parametrize("resource", PREFERENCES)
def test_no_pod_waits_for_what_is_only_preferred(resource):
    async def main():
        embedded = world(resource)
        async with scheduling(embedded) as scheduler:
            embedded.insert(pod("plain", container(cpu="1")))
            embedded.insert(with_claim("stateful"))
            await asyncio.sleep(10)
            assert node_of(embedded, "plain") == node_of(embedded, "stateful") == "alder"
            assert list(scheduler.watches.obstacles()) == [path_of(scheduler, resource)]

    run(main())


@pytest.mark.parametrize("resource", ["pods", "nodes"])
def test_nothing_starts_without_pods_and_nodes(resource):
    async def main():
        embedded = world(resource)
        embedded.insert(pod("plain", container(cpu="1")))
        running = scheduler_on(embedded)
        starting = asyncio.create_task(running.__aenter__())
        await asyncio.sleep(300)
        assert not starting.done()
        assert node_of(embedded, "plain") is None
        embedded.server.forbidden.clear()
        await starting
        await asyncio.sleep(10)
        assert node_of(embedded, "plain") == "alder"
        await running.__aexit__(None, None, None)

    run(main())


@pytest.mark.parametrize("resource", ["pods", "nodes", "persistentvolumeclaims"])
def test_what_must_not_be_read_any_more_holds_up_the_same(resource):
    """A role that loses a rule while we run: what is known grows old, and is not decided on."""

    async def main():
        embedded = world()
        async with scheduling(embedded) as scheduler:
            embedded.insert(with_claim("before"))
            await asyncio.sleep(10)
            assert node_of(embedded, "before") == "alder"
            embedded.server.forbidden.add(resource)
            embedded.server.hub.close_all()
            await until(lambda: scheduler.watches.obstacles(), "the refusal", 60)
            embedded.insert(with_claim("after"))
            await asyncio.sleep(30)
            if resource != "pods":  # else nobody hears of it
                assert refused(embedded, "after") == WAITS + resource
            assert node_of(embedded, "after") is None
            embedded.server.forbidden.clear()
            await asyncio.sleep(90)
            assert node_of(embedded, "after") == "alder"

    run(main())


def test_a_refusal_that_passes_quickly_costs_little():
    """API servers refuse for a moment while they start."""

    async def main():
        embedded = world("pods", "nodes", "services")
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, embedded.server.forbidden.clear)
        started = loop.time()
        async with scheduling(embedded):
            assert loop.time() - started < 6

    run(main())


def test_no_pod_is_preempted_while_budgets_must_not_be_read():
    async def main():
        embedded = world("poddisruptionbudgets.policy")
        embedded.insert(pod("low", container(cpu="3"), on="alder"))
        async with scheduling(embedded):
            embedded.insert(pod("high", container(cpu="3"), priority=10))
            await asyncio.sleep(30)
            assert refused(embedded, "high").endswith("preemption: not allowed to read pod disruption budgets.")
            assert "deletionTimestamp" not in embedded.get("Pod", "low")["metadata"]
            embedded.server.forbidden.clear()
            await asyncio.sleep(60)
            assert embedded.get("Pod", "low")["metadata"]["deletionTimestamp"]
            assert embedded.get("Pod", "high")["status"]["nominatedNodeName"] == "alder"

    run(main())


def test_namespaces_that_must_not_be_read_may_have_any_labels():
    """Whoever selects by their labels waits; whom others' anti-affinity may mean stays away from them."""
    term = pod_term("kubernetes.io/hostname", {"app": "web"}, namespaceSelector={"matchLabels": {"team": "x"}})
    listed = pod_term("kubernetes.io/hostname", {"app": "web"}, namespaces=["other"])

    async def main():
        embedded = world("namespaces")
        embedded.insert(node("birch", cpu="4"))
        embedded.insert(pod("guard", container(cpu="1"), on="alder", affinity=pod_affinity(required_anti=[term])))
        async with scheduling(embedded):
            embedded.insert(pod("web", container(cpu="1"), labels={"app": "web"}))
            embedded.insert(pod("selecting", container(cpu="1"), affinity=pod_affinity(required_anti=[term])))
            embedded.insert(pod("listing", container(cpu="1"), affinity=pod_affinity(required_anti=[listed])))
            await asyncio.sleep(10)
            assert node_of(embedded, "web") == "birch"
            assert node_of(embedded, "listing")
            assert refused(embedded, "selecting") == WAITS + "namespaces"
            embedded.server.forbidden.clear()
            await asyncio.sleep(60)
            assert node_of(embedded, "selecting")

    run(main())


def quota_world():
    embedded = world()
    manifest = (ROOT / "manifests" / "crds" / "elasticquotas.yaml").read_text()
    return embedded, yaml.safe_load(manifest)


QUOTAS = config.load(ROOT / "config" / "examples" / "quota" / "scheduler.yaml", catalog=CATALOG)


def quota(cpu):
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"min": {"cpu": cpu}, "max": {"cpu": cpu}},
    }


LABEL = {"quota.scheduling.koordinator.sh/name": "q"}


def test_pods_under_quotas_wait_for_quotas_that_must_not_be_read():
    async def main():
        embedded, definition = quota_world()
        embedded.insert(definition)
        embedded.insert(quota("1"))
        embedded.server.forbidden.add("elasticquotas.scheduling.sigs.k8s.io")
        async with scheduling(embedded, yaml_of(QUOTAS)):
            for i in range(2):
                embedded.insert(pod(f"p{i}", container(cpu="1"), labels=LABEL))
            await asyncio.sleep(10)
            assert {refused(embedded, f"p{i}") for i in range(2)} == {WAITS + "elasticquotas.scheduling.sigs.k8s.io"}
            embedded.server.forbidden.clear()
            await asyncio.sleep(60)
            assert sorted(map(str, (node_of(embedded, f"p{i}") for i in range(2)))) == ["None", "alder"]

    run(main())


@pytest.mark.parametrize(
    "example, kind",
    [
        ("load", "nodemetrics.slo.koordinator.sh"),
        ("numa", "noderesourcetopologies.topology.node.k8s.io"),
        ("devices", "devices.scheduling.koordinator.sh"),
    ],
)
def test_pods_wait_for_reports_on_nodes_that_must_not_be_read(example, kind):
    configuration = config.load(ROOT / "config" / "examples" / example / "scheduler.yaml", catalog=CATALOG)

    async def main():
        embedded = world()
        definition = (ROOT / "manifests" / "crds" / f"{kind.partition('.')[0]}.yaml").read_text()
        embedded.insert(yaml.safe_load(definition))
        embedded.server.forbidden.add(kind)
        async with scheduling(embedded, yaml_of(configuration)):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(10)
            assert refused(embedded, "p") == WAITS + kind
            embedded.server.forbidden.clear()
            await asyncio.sleep(60)
            assert node_of(embedded, "p") == "alder"

    run(main())


def test_a_definition_that_comes_later_is_taken_up():
    async def main():
        embedded, definition = quota_world()
        async with scheduling(embedded, yaml_of(QUOTAS)) as scheduler:
            embedded.insert(pod("before", container(cpu="100m")))
            await asyncio.sleep(300)
            assert node_of(embedded, "before") == "alder"
            assert scheduler.watches.obstacles() == {}  # what is not there is not in the way
            embedded.insert(definition)
            await asyncio.sleep(1)
            embedded.insert(quota("1"))
            await asyncio.sleep(46)  # as often as this it is looked for, at least
            for i in range(2):
                embedded.insert(pod(f"p{i}", container(cpu="1"), labels=LABEL))
            await asyncio.sleep(10)
            assert sorted(map(str, (node_of(embedded, f"p{i}") for i in range(2)))) == ["None", "alder"]

    run(main())


def yaml_of(configuration):
    """A loaded configuration as the embedded tests take one."""
    return yaml.safe_load(config.dump(configuration)) if configuration is not None else DEFAULT_CONFIG


async def test_readiness_names_it():
    embedded = embedded_with_users()
    embedded.server.forbidden.add("poddisruptionbudgets.policy")
    async with serving(embedded) as running:
        get = running.client.get
        assert await get("/readyz", None) == (
            500,
            "[+]shutdown ok\n[+]sched-handler-sync ok\n"
            "[-]watch-poddisruptionbudgets.policy failed: reason withheld\nreadyz check failed\n",
        )
        status, text = await get("/readyz/watch-poddisruptionbudgets.policy")
        assert status == 500
        assert text.startswith("internal server error: /apis/policy/v1/poddisruptionbudgets: forbidden: ")
        assert 'cannot list resource "poddisruptionbudgets" in API group "policy"' in text
        assert await get("/readyz?exclude=watch-poddisruptionbudgets.policy", None) == (200, "ok")
        assert await get("/livez", None) == (200, "ok")
        embedded.server.forbidden.clear()
        await until(lambda: not running.scheduler.watches.obstacles(), "the list", 60)
        assert await get("/readyz?verbose", None) == (
            200,
            "[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n",
        )
        assert (await get("/readyz/watch-poddisruptionbudgets.policy"))[0] == 404


def test_names_of_resources():
    assert resource_name(kinds.POD_DISRUPTION_BUDGETS.path) == "poddisruptionbudgets.policy"
    assert resource_name(kinds.SERVICES.path) == "services"
    assert missing_rule(kinds.SERVICES.path) == '{apiGroups: [""], resources: [services], verbs: [list, watch]}'
    assert yaml.safe_load(missing_rule(kinds.REPLICA_SETS.path)) == {
        "apiGroups": ["apps"],
        "resources": ["replicasets"],
        "verbs": ["list", "watch"],
    }
