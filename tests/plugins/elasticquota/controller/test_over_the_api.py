"""Controllers on a running cluster: bad input, profiles, the scheduler's own replicas, requests that go wrong."""

import asyncio

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.plugins.elasticquota import kinds as api
from tests.plugins.elasticquota.controller.cluster import (
    BUILT_IN,
    EXAMPLES,
    PROFILE_API,
    QUOTA_API,
    configuration,
    quota_cluster,
)
from tests.virtualtime import run

NODE = {"cpu": "10", "memory": "10Gi", "pods": "50"}


def quota(name, maximum, minimum=None, namespace="default", **labels):
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {api.PREFIX + key.replace("_", "-"): text for key, text in labels.items()},
    }
    return {
        "apiVersion": QUOTA_API,
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {"max": maximum, "min": minimum or {}},
    }


def pod(name, of, cpu, namespace="default", owner=None, **labels):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": namespace, "labels": {api.QUOTA_NAME: of, **labels}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def warnings(cluster):
    """Object -> texts of the warnings about it."""
    found = {}
    for event in cluster.events():
        if event["type"] == "Warning" and event["regarding"]["kind"] in ("ElasticQuota", "ElasticQuotaProfile"):
            key = f"{event['regarding']['namespace']}/{event['regarding']['name']}"
            found.setdefault(key, []).append((event["reason"], event["note"]))
    return found


def test_built_in_quotas_with_the_bounds_of_the_arguments():
    async def main():
        config = configuration(
            quotaGroupNamespace="quotas", defaultQuotaGroupMax={"cpu": "5"}, systemQuotaGroupMax={"memory": "1Gi"}
        )
        async with quota_cluster([NODE], config) as (cluster, _):
            # The namespace comes late.
            await asyncio.sleep(10)
            assert all(cluster.quota(name, "quotas") is None for name in BUILT_IN)
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quotas"}})
            await cluster.until(lambda: all(cluster.quota(name, "quotas") for name in BUILT_IN))
            assert cluster.quota(api.DEFAULT_QUOTA, "quotas")["spec"] == {"max": {"cpu": "5"}}
            assert cluster.quota(api.SYSTEM_QUOTA, "quotas")["spec"] == {"max": {"memory": "1Gi"}}
            root = cluster.quota(api.ROOT_QUOTA, "quotas")
            assert root["spec"] == {}
            assert root["metadata"]["labels"] == {
                api.IS_PARENT: "true",
                api.ALLOW_LENT_RESOURCE: "false",
                api.PARENT: "",
            }

    run(main())


@pytest.mark.parametrize(("monitor", "runtime"), [(True, True), (True, False), (False, True)])
def test_pods_are_revoked_only_where_quotas_are_monitored_and_have_a_runtime(monitor, runtime):
    async def main():
        config = configuration(monitorAllQuotas=monitor, enableRuntimeQuota=runtime, delayEvictTime="5s")
        async with quota_cluster([NODE], config) as (cluster, _):
            cluster.create(quota("team", {"cpu": "4"}))
            for number in range(4):
                cluster.create(pod(f"p{number}", "team", "1"))
            await cluster.until(lambda: len(cluster.running()) == 4)
            cluster.patch("ElasticQuota", "team", {"spec": {"max": {"cpu": "3"}}})
            await asyncio.sleep(30)
            assert len(cluster.running()) == (3 if monitor and runtime else 4)

    run(main())


def test_bad_quotas_are_reported_and_harm_no_others():
    async def main():
        async with quota_cluster([NODE]) as (cluster, _):
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
            for thing in (
                quota("good", {"cpu": "4"}, {"cpu": "1"}),
                quota("x", {"cpu": "4"}, parent="y", is_parent="true"),
                quota("y", {"cpu": "4"}, parent="x", is_parent="true"),
                quota("orphan", {"cpu": "4"}, parent="nobody"),
                quota("negative", {"cpu": "-4"}),
                quota("inverse", {"cpu": "1"}, {"cpu": "2"}),
                quota("good", {"cpu": "1"}, namespace="other"),
            ):
                cluster.create(thing)
                await asyncio.sleep(1.1)  # the older of two objects is told by whole seconds
            with pytest.raises(ApiStatusError):
                cluster.create(quota("lots", {"cpu": "lots"}))
            for name in ("good", "x", "orphan", "inverse"):
                cluster.create(pod(f"in-{name}", name, "1"))
            await cluster.until(lambda: cluster.running() == ["in-good", "in-inverse", "in-orphan", "in-x"])
            await asyncio.sleep(5)
            said = warnings(cluster)
            parts = {
                "default/x": "leads back",
                "default/y": "leads back",
                "default/orphan": "nobody",
                "default/negative": "negative",
                "default/inverse": "min",
                "other/good": "namespace default already",
            }
            assert said.keys() == parts.keys()
            for key, part in parts.items():
                reason, note = said[key][-1]
                assert reason == "InvalidQuota"
                assert part in note
            # What is wrong with x changed when y came.
            assert [note.partition(":")[0] for _, note in said["default/x"]] == [
                "parent y does not exist",
                "its chain of parents leads back to it",
            ]
            assert cluster.used("good") == cluster.used("good", "other") == {"cpu": "1"}

            cluster.delete("ElasticQuota", "good", api_version=QUOTA_API)
            cluster.delete("ElasticQuota", "good", "other", api_version=QUOTA_API)
            await asyncio.sleep(5)
            assert warnings(cluster)["default/good"] == [
                ("QuotaInUse", f"deleted while 1 pod named it; they count in {api.DEFAULT_QUOTA} now")
            ]
            assert cluster.used(api.DEFAULT_QUOTA, "koordinator-system") == {"cpu": "1"}

    run(main())


def test_profiles_make_trees():
    async def main():
        gates = ("MultiQuotaTree=true",)
        async with quota_cluster([NODE, NODE, NODE], gates=gates) as (cluster, _):
            for number, pool in enumerate(("a", "a", "b")):
                cluster.patch("Node", f"node-{number}", {"metadata": {"labels": {"pool": pool}}}, None, "v1")
            cluster.create(
                {
                    "apiVersion": PROFILE_API,
                    "kind": "ElasticQuotaProfile",
                    "metadata": {"name": "pool-a", "namespace": "default"},
                    "spec": {
                        "quotaName": "root-a",
                        "quotaLabels": {api.IS_PARENT: "true"},
                        "resourceRatio": "0.5",
                        "nodeSelector": {"matchLabels": {"pool": "a"}},
                    },
                }
            )
            await cluster.until(lambda: cluster.quota("root-a") is not None)
            tree = cluster.quota("root-a")["metadata"]["labels"][api.TREE_ID]
            profile = cluster.get("ElasticQuotaProfile", "pool-a", "default", PROFILE_API)
            assert profile["metadata"]["labels"] == {api.TREE_ID: tree}
            assert cluster.annotation("root-a", "total-resource") == {"cpu": "10", "memory": "10Gi", "pods": "50"}
            cluster.create(quota("team", {"cpu": "20"}, parent="root-a", tree_id=tree))
            for number in range(4):
                cluster.create(pod(f"p{number}", "team", "3"))
            await cluster.until(lambda: len(cluster.running()) == 3)
            await asyncio.sleep(15)
            assert len(cluster.running()) == 3
            assert cluster.annotation("team", "runtime") == {"cpu": "10"}

            # A node is lost: the tree shrinks within ten seconds.
            cluster.delete("Node", "node-1")
            await cluster.until(lambda: cluster.annotation("root-a", "total-resource")["cpu"] == "5", limit=11)
            await cluster.until(lambda: cluster.annotation("team", "runtime") == {"cpu": "5"}, limit=3)

    run(main())


def test_own_replicas_are_never_evicted():
    async def main():
        config = configuration(delayEvictTime="2s")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "sched", "uid": "u-1", "controller": True}
        async with quota_cluster([NODE], config, own_pod=("koordinator-system", "sched-1")) as (cluster, _):
            cluster.kube.stop()  # nobody collects pods whose ReplicaSet is not there
            cluster.create(quota("q", {"cpu": "9"}))
            cluster.create(quota("r", {"cpu": "9"}, {"cpu": "9"}))
            for name in ("sched-1", "sched-2"):
                cluster.create(pod(name, "q", "2", "koordinator-system", owner))
            for name in ("a", "b"):
                cluster.create(pod(name, "q", "2"))
            await cluster.until(lambda: len(cluster.running()) == len(cluster.running("koordinator-system")) == 2)
            # r wants what is its own; q may have 1 now and has 8.
            cluster.create(pod("owner", "r", "9"))
            await cluster.until(lambda: cluster.running() == [], limit=10)
            await asyncio.sleep(20)
            assert cluster.running("koordinator-system") == ["sched-1", "sched-2"]

    run(main())


def test_writes_that_are_refused_or_lost_are_made_up_for():
    """Every third write of a quota fails, some with an answer, some without."""

    async def main():
        count = 0

        async def fault(call, proceed):
            nonlocal count
            if "elasticquotas" in call.path and call.method in ("PATCH", "POST"):
                count += 1
                if count % 3 == 0:
                    await proceed()
                    raise Ambiguous("lost")
                if count % 3 == 1:
                    raise NotSent("refused")
            return await proceed()

        async with quota_cluster(fault=fault) as (cluster, _):
            cluster.apply(EXAMPLES / "4-borrowing" / "quotas.yaml")
            cluster.apply(EXAMPLES / "4-borrowing" / "team-a.yaml")
            await cluster.until(lambda: len(cluster.running(app="team-a")) == 30)
            await asyncio.sleep(60)
            assert count > 5
            assert cluster.used("team-a") == {"cpu": "300"}
            assert cluster.annotation("team-a", "runtime") == {"cpu": "300"}
            assert all(cluster.quota(name, "koordinator-system") for name in BUILT_IN)

    run(main())
