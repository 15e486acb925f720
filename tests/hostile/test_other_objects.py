"""Objects besides pods and nodes, spoilt in any way: the scheduler does not stumble, and places a sound pod."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.embedded import Embedded, scheduler_on
from tests.hostile.test_decoders import _Errors, _insert, spoilt
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term
from tests.plugins.volumes.objects import claim, csi_node, storage_class, volume
from tests.virtualtime import run
from tests.yamlfiles import document

ROOT = Path(__file__).parents[2]
CONFIGURATION = document(ROOT / "config" / "examples" / "quota" / "scheduler.yaml")
DEFINITIONS = [
    document(ROOT / "manifests" / "crds" / f"{name}.yaml") for name in ("elasticquotas", "elasticquotaprofiles")
]
SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}


def thing(api_version, kind, name, namespace="default", **parts):
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {"a": "b"},
        **parts.pop("meta", {}),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


QUOTA = "quota.scheduling.koordinator.sh/"
THINGS = {
    "claim": claim("c", bound_to="v"),
    "claim that waits": claim("c"),
    "volume": volume("v", claim="c", at={"kubernetes.io/hostname": ["sound"]}),
    "class": storage_class(zones=["a"]),
    "CSI node": thing(
        "storage.k8s.io/v1", "CSINode", "sound", None, spec=csi_node("sound", disk_test=3)["spec"]
    ),
    "budget": thing(
        "policy/v1", "PodDisruptionBudget", "b", spec={"selector": SELECTOR},
        status={"disruptionsAllowed": 1, "disruptedPods": {"p": "2030-01-01T00:00:00Z"}},
    ),
    "service": thing("v1", "Service", "s", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    "replica set": thing(
        "apps/v1", "ReplicaSet", "r",
        spec={"selector": SELECTOR, "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    ),
    "namespace": thing("v1", "Namespace", "n", None, spec={}, status={"phase": "Active"}),
    "quota": thing(
        "scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", "q",
        spec={"min": {"cpu": "1"}, "max": {"cpu": "8"}},
        meta={
            "labels": {QUOTA + "parent": "koordinator-root-quota", QUOTA + "is-parent": "false"},
            "annotations": {QUOTA + "shared-weight": '{"cpu":"1"}', QUOTA + "namespaces": '["n"]'},
        },
    ),
    "quota profile": thing(
        "quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile", "f",
        spec={"quotaName": "q", "nodeSelector": {"matchLabels": {"a": "b"}}, "quotaLabels": {"a": "b"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THINGS)
def test_spoilt_objects_harm_nobody(name):
    @settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(spoilt(THINGS[name]), min_size=1, max_size=2))
    def any_objects(versions):
        async def main():
            embedded = Embedded()
            for definition in DEFINITIONS:
                embedded.insert(definition)
            embedded.insert(node("sound", cpu="64", memory="256Gi"))
            for other, whole in THINGS.items():
                if other not in (name, "claim that waits"):
                    _insert(embedded, whole)
            _insert(embedded, versions[0])
            async with scheduler_on(embedded, CONFIGURATION):
                affinity = pod_affinity(required_anti=[pod_term("zone", {"x": "y"}, namespaceSelector={})])
                data = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
                # These may or may not be placed: it is their neighbours that are looked at.
                embedded.insert(
                    pod("user", container(cpu="1"), labels={"app": "web", QUOTA + "name": "q"}, volumes=data)
                )
                embedded.insert(pod("low", container(cpu="60"), labels={"app": "web"}, affinity=affinity))
                await asyncio.sleep(10)
                for version in versions[1:]:
                    _replace(embedded, version)
                embedded.insert(pod("fine", container(cpu="30"), priority=10))
                await asyncio.sleep(10)
                for victim in embedded.registry.list(embedded.resource("Pod")):
                    if victim["metadata"].get("deletionTimestamp"):
                        meta = victim["metadata"]
                        embedded.registry.delete(embedded.resource("Pod"), "default", meta["name"], 0)
                await asyncio.sleep(60)
                assert embedded.get("Pod", "fine")["spec"].get("nodeName") == "sound"

        with _Errors() as errors:
            run(main())
        assert errors == []

    any_objects()


def _replace(embedded, version):
    resource = embedded.registry.resource_for_kind(version["apiVersion"], version["kind"])
    namespace = version["metadata"].get("namespace")
    record = embedded.registry.collection(resource).get(namespace or "", version["metadata"]["name"])
    if record is not None:
        with suppress(Exception):  # as in `_insert`
            embedded.registry._commit(resource, "MODIFIED", record, version, dry_run=False)
