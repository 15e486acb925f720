"""Root quotas of trees at the size of their nodes (elasticquota spec 3.17, section 7 case 30)."""

import asyncio
import json

import msgspec
import pytest

from koordsched.api.decoding import convert
from koordsched.api.quantity import nano_value
from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.controller import profiles
from koordsched.plugins.elasticquota.controller.profiles import ProfileController, keys_of, ratio_of, tree_id_of
from koordsched.plugins.elasticquota.kinds import ELASTIC_QUOTA_PROFILES
from tests.plugins.elasticquota.controller.books import Ledger, Reporter, Writes, merged
from tests.virtualtime import run

NODE = {"cpu": "10", "memory": "1000", "storage": "1000"}
SELECTOR = {"matchLabels": {"pool": "a"}}


def profile_of(name="prof", selector=SELECTOR, labels=None, annotations=None, generation=1, **spec):
    metadata = {"name": name, "namespace": "ns", "uid": name, "generation": generation}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}}
    return convert(
        {"metadata": metadata, "spec": {"quotaName": "root-a", "nodeSelector": selector, **spec}},
        api.ElasticQuotaProfile,
    )


class World:
    """Nodes, a controller, and a server that remembers quotas."""

    def __init__(self):
        self.ledger = Ledger()
        for name, pool, ready in (("n1", "a", True), ("n2", "a", False), ("n3", "b", True)):
            self.ledger.node(name, NODE, {"pool": pool}, ready=ready)
        self.writes, self.reporter = Writes(), Reporter()
        self.controller = ProfileController(self.ledger.cluster, self.writes, self.reporter)
        self.store = self.ledger.cluster.objects.of(ELASTIC_QUOTA_PROFILES)

    def deliver(self):
        """What was written to quotas comes back."""
        for _, namespace, thing in self.writes.created:
            self._store({"metadata": {"namespace": namespace, "uid": "u"}} | thing)
        for plural, name, changes in self.writes.merges:
            if plural == "elasticquotas":
                obj = self.quota(name)
                self._store(merged(obj, changes))
        self.writes.created.clear()
        self.writes.merges.clear()

    def quota(self, name="root-a"):
        return msgspec.to_builtins(self.ledger.store.get("ns", name))

    def _store(self, thing):
        self.ledger.store.upsert(convert(thing, api.ElasticQuota))


def amounts(quantities):
    shown = json.loads(quantities) if isinstance(quantities, str) else quantities
    return {name: nano_value(quantity) // 10**9 for name, quantity in shown.items()}


def test_elasticquota_case_30_a_new_quota():
    async def main():
        world = World()
        labels = {api.TREE_ID: "t", "more": "x"}
        profile = profile_of(resourceRatio="0.9", labels=labels, quotaLabels={api.IS_PARENT: "true"})
        assert await world.controller.reconcile(profile)
        ((plural, namespace, thing),) = world.writes.created
        assert (plural, namespace, thing["metadata"]["name"]) == ("elasticquotas", "ns", "root-a")
        assert thing["metadata"]["labels"] == {
            api.IS_PARENT: "true",
            api.PROFILE: "prof",
            api.TREE_ID: "t",
            api.IS_ROOT: "true",
        }
        assert amounts(thing["spec"]["min"]) == {"cpu": 18, "memory": 1800}
        assert thing["spec"]["max"] == {"cpu": "4611686018427387", "memory": "4611686018427387"}
        annotations = thing["metadata"]["annotations"]
        assert amounts(annotations[api.TOTAL_RESOURCE]) == {"cpu": 18, "memory": 1800, "storage": 1800}
        assert amounts(annotations[api.UNSCHEDULABLE_RESOURCE]) == {"cpu": 9, "memory": 900, "storage": 900}
        assert world.writes.merges == []

    run(main())


def test_elasticquota_case_30_resource_keys():
    async def main():
        world = World()
        profile = profile_of(resourceRatio="0.9", annotations={api.RESOURCE_KEYS: '["cpu"]'})
        assert await world.controller.reconcile(profile)
        ((_, _, thing),) = world.writes.created
        assert amounts(thing["spec"]["min"]) == {"cpu": 18}
        assert thing["spec"]["max"] == {"cpu": "4611686018427387"}
        assert amounts(thing["metadata"]["annotations"][api.TOTAL_RESOURCE])["storage"] == 1800

    run(main())


def test_only_what_differs_is_written():
    async def main():
        world = World()
        profile = profile_of(labels={api.TREE_ID: "t"})
        await world.controller.reconcile(profile)
        world.deliver()
        await world.controller.reconcile(profile)
        assert world.writes.created == world.writes.merges == []

        # A node is cordoned: nothing but the annotation.
        world.ledger.node("n1", NODE, {"pool": "a"}, cordoned=True)
        await world.controller.reconcile(profile)
        ((_, _, changes),) = world.writes.merges
        assert changes.keys() == {"metadata"}
        assert changes["metadata"].keys() == {"annotations"}
        assert changes["metadata"]["annotations"].keys() == {api.UNSCHEDULABLE_RESOURCE}
        world.deliver()

        # Other resources are named: those not named any more go.
        other = profile_of(labels={api.TREE_ID: "t"}, annotations={api.RESOURCE_KEYS: '["cpu","gpu"]'})
        await world.controller.reconcile(other)
        ((_, _, changes),) = world.writes.merges
        assert changes["spec"]["min"] == {"memory": None, "cpu": "20", "gpu": "0"}
        world.deliver()
        assert amounts(world.quota()["spec"]["min"]) == {"cpu": 20, "gpu": 0}

        # Labels that others set stay.
        world.ledger.store.upsert(
            convert(merged(world.quota(), {"metadata": {"labels": {"x": "y"}}}), api.ElasticQuota)
        )
        await world.controller.reconcile(other)
        assert world.writes.merges == []

    run(main())


def test_a_profile_without_a_tree_gets_one():
    async def main():
        world = World()
        await world.controller.reconcile(profile_of())
        tree_id = tree_id_of("ns", "prof")
        changes = {"metadata": {"labels": {api.TREE_ID: tree_id}}}
        assert world.writes.merges == [("elasticquotaprofiles", "prof", changes)]
        assert world.writes.created[0][2]["metadata"]["labels"][api.TREE_ID] == tree_id

    run(main())


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [("default", "pt-a", "4049835370139043565"), ("ns", "prof", "9554382621117054908")],
)
def test_tree_ids(namespace, name, expected):
    assert tree_id_of(namespace, name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 1), ("", 1), ("0.9", 0.9), ("1", 1), ("0", 1), ("-0.5", 1), ("1.01", 1), ("most", 1), ("nan", 1)],
)
def test_ratios(text, expected):
    assert ratio_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, ("cpu", "memory")), ("{", ("cpu", "memory")), ("[]", ("cpu", "memory")), ('["gpu","gpu"]', ("gpu",))],
)
def test_keys(text, expected):
    assert keys_of(text) == expected


def test_parts_are_truncated():
    capacity = profiles.Capacity({"cpu": 1234 * 10**6, "memory": 999 * 10**9}, {}).scaled(0.5)
    assert capacity.total == {"cpu": 617 * 10**6, "memory": 499 * 10**9}


@pytest.mark.parametrize(("existing", "doing"), [(False, "create"), (True, "update")])
def test_failures_are_said_and_tried_again(existing, doing):
    async def main():
        world = World()
        world.store.upsert(profile_of(labels={api.TREE_ID: "t"}))
        if existing:
            world.ledger.quota("root-a", {"cpu": 1}, namespace="ns")
        world.writes.refused = {"root-a"}
        task = asyncio.create_task(world.controller.run())
        await asyncio.sleep(1)
        assert world.reporter.events == [
            ("prof", f"{doing.capitalize()}QuotaFailed", f"failed to {doing} quota, err: no")
        ]
        world.writes.refused = set()
        await asyncio.sleep(profiles.RETRY)
        assert len(world.writes.created) + len(world.writes.merges) == 1
        task.cancel()

    run(main())


def test_a_changed_profile_is_looked_at_at_once_and_nodes_after_a_while():
    async def main():
        world = World()
        world.store.upsert(profile_of(labels={api.TREE_ID: "t"}))
        task = asyncio.create_task(world.controller.run())
        await asyncio.sleep(0.1)
        world.deliver()
        world.store.upsert(profile_of(labels={api.TREE_ID: "t"}, generation=2, resourceRatio="0.5"))
        await asyncio.sleep(0.1)
        world.deliver()
        assert amounts(world.quota()["spec"]["min"])["cpu"] == 10
        world.ledger.node("n4", NODE, {"pool": "a"})
        await asyncio.sleep(profiles.INTERVAL)
        world.deliver()
        assert amounts(world.quota()["spec"]["min"])["cpu"] == 15
        task.cancel()

    run(main())


def test_a_selector_that_cannot_be_read():
    async def main():
        world = World()
        selector = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
        assert await world.controller.reconcile(profile_of(selector=selector))
        ((name, reason, text),) = world.reporter.events
        assert (name, reason) == ("prof", "InvalidNodeSelector")
        assert "Near" in text
        assert world.writes.created == []

    run(main())
