"""The roles in manifests/ are enough for everything that a scheduler asks for, and are asked for in full."""

import asyncio
from pathlib import Path

import pytest

from tests.depth import quick_first
from tests.simulation.apiserver import right_needed
from tests.simulation.loop import SimulationLoop
from tests.simulation.simulation import Simulation
from tests.yamlfiles import documents

MANIFESTS = Path(__file__).parents[2] / "manifests"
COMPONENTS = (
    *("elastic-quota", "load-aware", "numa", "devices", "reservation"),
    *("gangs", "node-circuit-breaker", "workload-quarantine"),
)
ROLES = ("base", *(f"components/{name}" for name in COMPONENTS))
RBAC = tuple(MANIFESTS / folder / "rbac.yaml" for folder in ROLES)

ELSEWHERE = {
    # The endpoints' delegated authentication, events on the lease, profiles of quotas, and reading volumes and
    # Reservations back after a write whose answer was lost have tests of their own.
    ("", "persistentvolumeclaims", "get"),
    ("", "persistentvolumes", "get"),
    ("scheduling.koordinator.sh", "reservations", "get"),
    ("quota.koordinator.sh", "elasticquotaprofiles", "patch"),
    # So have making, reading and deleting claims. API servers ask for rights on parts of a claim's status (1.36);
    # upstream's role has `update` of claims. Rules of taints are read with their feature gate only.
    *(("resource.k8s.io", "resourceclaims", verb) for verb in ("create", "get", "delete", "update")),
    ("resource.k8s.io", "resourceclaims/status", "update"),
    *(("resource.k8s.io", "resourceclaims/binding", verb) for verb in ("patch", "update")),
    *(("resource.k8s.io", "devicetaintrules", verb) for verb in ("list", "watch")),
    ("", "events", "create"),
    ("", "events", "patch"),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}
"""Rights that nothing in a simulation needs."""

REVOKES = "67+quotas"
"""A seed in which pods are evicted because their quota uses too much, and Reservations are given devices and deleted
when they are over."""

REFUSES = 19
"""One in which a node is broken and a workload quarantined."""

CLAIMS = "3+claims"
"""One in which devices are claimed."""

GROUPS = (
    *("", "apps", "policy", "storage.k8s.io", "coordination.k8s.io"),
    *("scheduling.sigs.k8s.io", "quota.koordinator.sh", "slo.koordinator.sh", "topology.node.k8s.io"),
    *("scheduling.koordinator.sh", "resource.k8s.io"),
)
"""Those whose objects there are in a simulation."""


def granted():
    roles = [obj for path in RBAC for obj in documents(path) if obj["kind"] in ("ClusterRole", "Role")]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(seed):
    """The rights that the replicas of one run needed."""

    async def main():
        run = Simulation(seed, 100)
        await run.run()
        assert run.invariants.violations == []
        return run.server.rights

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(main())


MOST = (12, "10+reservations")
"""With those that have a reason of their own, the fewest in which all the rest is needed."""


@pytest.mark.parametrize("seeds", quick_first([MOST, range(20)], 1))
def test_roles_are_enough_and_no_more(seeds):
    needed = set().union(*(used(seed) for seed in (*seeds, REVOKES, REFUSES, CLAIMS)))
    assert needed - granted() == set(), "not granted"
    assert {right for right in granted() if right[0] in GROUPS} - needed - ELSEWHERE == set(), "granted for nothing"


REQUESTS = [
    ("GET", "/api/v1/pods", {}, ("", "pods", "list")),
    ("GET", "/api/v1/pods", {"watch": "1"}, ("", "pods", "watch")),
    ("GET", "/api/v1/namespaces", {}, ("", "namespaces", "list")),
    ("GET", "/api/v1/namespaces/a/pods/b", {}, ("", "pods", "get")),
    ("POST", "/api/v1/namespaces/a/pods/b/binding", {}, ("", "pods/binding", "create")),
    ("PATCH", "/api/v1/namespaces/a/pods/b/status", {}, ("", "pods/status", "patch")),
    ("DELETE", "/api/v1/namespaces/a/pods/b", {}, ("", "pods", "delete")),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", {}, ("coordination.k8s.io", "leases", "update")),
    ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", {}, ("events.k8s.io", "events", "create")),
]


@pytest.mark.parametrize("method, path, query, right", REQUESTS)
def test_which_right_a_request_needs(method, path, query, right):
    assert right_needed(method, path, query) == right
