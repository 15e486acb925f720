"""The manifests: they can be applied, roles are what the scheduler needs and no more, the container is locked in."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordsched.cli.leader import LEASES
from koordsched.cli.offline import prepare
from koordsched.cluster.builtinkinds import CONFIG_MAPS, DEVICE_TAINT_RULES, NODES, PODS
from koordsched.cluster.kinds import Kind
from koordsched.config import load, resolve
from koordsched.plugins import CATALOG, DECLARED, KINDS
from koordsched.plugins.shared.podgroups import POD_GROUPS
from tests import yamlfiles
from tests.packaging.kubectl import api_server, kubectl, needs_kubectl

USER = 65532
MANIFESTS = Path(__file__).parents[2] / "manifests"
Object = dict[str, Any]


def documents(name: str) -> list[Object]:
    return yamlfiles.documents(MANIFESTS / name)


def of_kind(objects: list[Object], kind: str) -> Object:
    (found,) = (obj for obj in objects if obj["kind"] == kind)
    return found


def granted(role: Object) -> set[tuple[str, str, str]]:
    """(group, resource, verb)"""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights(kind: Kind[Any]) -> set[tuple[str, str, str]]:
    """What a scheduler that reads the kind asks for."""
    verbs = {**kind.verbs, "": ("list", "watch", *kind.verbs.get("", ()))}
    return {
        (kind.group, f"{kind.plural}/{subresource}".rstrip("/"), verb)
        for subresource in verbs
        for verb in verbs[subresource]
    }


def wanted() -> set[Kind[Any]]:
    """Nodes, pods, and every kind that a plugin of the configuration asks for, if only behind a feature gate."""
    resolved = resolve(load(MANIFESTS / "base" / "config.yaml"))
    stores = prepare([], resolved).scheduler.cluster.objects.wanted()
    return {NODES, PODS, DEVICE_TAINT_RULES, *(store.kind for store in stores)}


OTHER_RIGHTS = {
    ("", "events", "create"),
    ("", "events", "patch"),
    ("events.k8s.io", "events", "create"),
    ("events.k8s.io", "events", "patch"),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}


def test_the_cluster_role_is_what_the_scheduler_calls() -> None:
    of_kinds = set().union(*map(rights, wanted()))
    assert granted(of_kind(documents("base/rbac.yaml"), "ClusterRole")) == of_kinds | OTHER_RIGHTS


def test_components_have_the_rights_that_the_kinds_of_their_plugins_need() -> None:
    roles = [
        of_kind(documents(str(path.relative_to(MANIFESTS))), "ClusterRole")
        for path in MANIFESTS.glob("components/*/rbac.yaml")
    ]
    of_kinds = set().union(*map(rights, set(KINDS.values()) - wanted()))
    # What controllers write: evictions, and annotations of nodes and namespaces.
    of_controllers = {("", "pods/eviction", "create"), ("", "nodes", "patch"), ("", "namespaces", "patch")}
    # What plugins write before a pod is bound: its annotations.
    of_pre_bind = {("", "pods", "patch")}
    assert set().union(*map(granted, roles)) == of_kinds | of_controllers | of_pre_bind


def test_debug_readers_may_what_the_commands_do() -> None:
    role = of_kind(documents("base/debugreader.yaml"), "ClusterRole")
    (pages,) = (rule for rule in role["rules"] if "nonResourceURLs" in rule)
    patterns = pages["nonResourceURLs"]

    def covered(path: str) -> bool:
        return any(path == pattern or (pattern[-1] == "*" and path.startswith(pattern[:-1])) for pattern in patterns)

    of_plugins = [page.path for declared in DECLARED for page in declared.pages]
    own = ["explain", "pending", "decisions", "overcommitment", "snapshot"]
    assert [path for path in (*of_plugins, *(f"/debug/{name}" for name in own)) if not covered(path)] == []
    assert pages["verbs"] == ["get"]
    assert not any(covered(path) for path in ("/debug/stacks", "/debug/flags/v", "/metrics", "/configz"))
    rules = {"rules": [rule for rule in role["rules"] if "resources" in rule]}
    verbs = ("get", "list", "watch")
    assert granted(rules) == {(kind.group, kind.plural, verb) for kind in KINDS.values() for verb in verbs}


def test_debug_readers_reach_the_leader() -> None:
    leases = [("base/debugreader.yaml", LEASES[0]), ("only-scheduler/debugreader.yaml", LEASES[1])]
    for name, lease in leases:
        role = of_kind(documents(name), "Role")
        named = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
        assert [f"{role['metadata']['namespace']}/{one}" for one in named[0]["resourceNames"]] == [lease]
    role = of_kind(documents("base/debugreader.yaml"), "Role")
    assert granted(role) == {
        ("coordination.k8s.io", "leases", "get"),
        ("", "pods", "list"),
        ("", "pods/portforward", "create"),
        ("", "pods/portforward", "get"),
    }


def test_custom_resources_are_defined_as_they_are_read() -> None:
    specs = [documents(f"crds/{path.name}")[0]["spec"] for path in MANIFESTS.glob("crds/[!k]*.yaml")]
    defined = {
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"]): (spec["names"]["plural"], spec["scope"])
        for spec in specs
        for version in spec["versions"]
        if version["served"]
    }
    read = {
        name: (kind.plural, "Namespaced" if kind.namespaced else "Cluster")
        for name, kind in KINDS.items()
        # ConfigMaps and PodGroups are Kubernetes' own, read by plugins that are off by default.
        if kind not in {*wanted(), CONFIG_MAPS, POD_GROUPS}
    }
    assert read.items() <= defined.items()
    # Nothing is defined that is not read, in one version.
    assert len(read) == len(specs)


def test_the_lease_of_the_configuration_is_the_one_in_the_role() -> None:
    election = load(MANIFESTS / "base" / "config.yaml").leader_election
    role = of_kind(documents("base/rbac.yaml"), "Role")
    assert role["metadata"]["namespace"] == election.resource_namespace
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [election.resource_name]]
    assert granted(role) == {
        ("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "list", "watch", "update")
    }


@pytest.mark.parametrize(
    "folder, profile, lease",
    [
        ("base", "koordsched", "koordsched-system/koordsched"),
        ("only-scheduler", "default-scheduler", "kube-system/kube-scheduler"),
        ("with-elastic-quota", "koordsched", "koordsched-system/koordsched"),
        ("with-load-aware", "koordsched", "koordsched-system/koordsched"),
        ("with-numa", "koordsched", "koordsched-system/koordsched"),
        ("with-devices", "koordsched", "koordsched-system/koordsched"),
        ("with-reservations", "koordsched", "koordsched-system/koordsched"),
        ("with-gangs", "koordsched", "koordsched-system/koordsched"),
    ],
)
def test_configurations_are_accepted(folder: str, profile: str, lease: str) -> None:
    resolved = resolve(load(MANIFESTS / folder / "config.yaml", catalog=CATALOG), catalog=CATALOG)
    election = resolved.leader_election
    assert [one.scheduler_name for one in resolved.profiles] == [profile]
    assert f"{election.resource_namespace}/{election.resource_name}" == lease


def test_the_container_is_locked_in() -> None:
    spec = documents("base/deployment.yaml")[0]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    # The root file system cannot be written; what can is memory, and small.
    assert [volume["name"] for volume in spec["volumes"] if "emptyDir" in volume] == ["scratch"]
    assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["name"] != "scratch")
    assert {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]} == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {probe: container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe")} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }


def test_the_image_runs_as_the_same_user() -> None:
    stages = re.split(r"^(?=FROM )", (MANIFESTS.parent / "Dockerfile").read_text(), flags=re.MULTILINE)
    final = [line.split() for line in stages[-1].splitlines() if line and not line.startswith("#")]
    assert [words[1] for words in final if words[0] == "USER"] == [f"{USER}:{USER}"]
    # Nothing is installed or changed in the stage that is shipped; it has what was built, and no pip to add more with.
    assert {words[0] for words in final} <= {"FROM", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert "pip uninstall --yes setuptools pip" in stages[-2]


def test_the_namespace_refuses_less_than_that() -> None:
    labels = documents("base/namespace.yaml")[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_replicas_do_not_go_together() -> None:
    spec = documents("base/deployment.yaml")[0]["spec"]
    pod = spec["template"]["spec"]
    (budget,) = documents("base/poddisruptionbudget.yaml")
    assert (spec["replicas"], budget["spec"]["maxUnavailable"]) == (2, 1)
    # A replica that is not ready does not keep its node from being drained.
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert pod["priorityClassName"] == "system-cluster-critical"
    ours = budget["spec"]["selector"]["matchLabels"]
    preferred = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["podAffinityTerm"] for term in preferred]
    assert [term["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(term["labelSelector"]["matchLabels"] == ours for term in terms)


def test_a_slow_start_and_a_slow_election_are_not_killed() -> None:
    (container,) = documents("base/deployment.yaml")[0]["spec"]["template"]["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    lists_within = 60
    assert startup["periodSeconds"] * startup["failureThreshold"] >= lists_within
    # The process ends itself at the renew deadline; the kubelet is the last resort.
    deadline = load(MANIFESTS / "base" / "config.yaml").leader_election.renew_deadline.seconds
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > deadline


_SIZE = re.compile(r"^\| ([\d,]+) nodes, ([\d,]+) pods[^|]*\| ([\d,]+) MiB \|", re.MULTILINE)
BURST = 150
"""MiB that 10,000 pods at once take besides (docs/performance.md)."""


@pytest.mark.parametrize(
    "resources, nodes, pods",
    [
        pytest.param("base/deployment.yaml", 5_000, 150_000, id="base"),
        pytest.param("components/large/kustomization.yaml", 100_000, 1_000_000, id="large"),
    ],
)
def test_resources_are_those_of_the_sizing_table(resources: str, nodes: int, pods: int) -> None:
    text = (MANIFESTS.parent / "docs" / "performance.md").read_text()
    rows = [[int(number.replace(",", "")) for number in row] for row in _SIZE.findall(text)]
    needed = [mib + BURST for of_nodes, of_pods, mib in rows if of_nodes <= nodes and of_pods <= pods]
    assert len(needed) >= 3
    (document,) = documents(resources)
    if document["kind"] == "Component":
        (operation,) = yaml.safe_load(document["patches"][0]["patch"])
        given = operation["value"]
    else:
        given = document["spec"]["template"]["spec"]["containers"][0]["resources"]
    requested, limit = (mebibytes(given[kind]["memory"]) for kind in ("requests", "limits"))
    assert requested >= max(needed)
    assert limit >= 1.3 * requested
    assert "cpu" not in given["limits"]


def mebibytes(quantity: str) -> int:
    return int(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]


@needs_kubectl
def test_a_large_cluster_gets_more(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    folder = tmp_path / "manifests" / "mine"
    folder.mkdir()
    text = {"resources": ["../base"], "components": ["../components/large"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    deployment = of_kind(list(yaml.safe_load_all(kubectl("kustomize", str(folder)))), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "4Gi"}


@needs_kubectl
def test_kustomize_joins_everything() -> None:
    objects = list(yaml.safe_load_all(kubectl("kustomize", str(MANIFESTS))))
    deployment = of_kind(objects, "Deployment")
    template = deployment["spec"]["template"]
    assert deployment["spec"]["replicas"] == 2
    for kind in ("PodDisruptionBudget", "Deployment"):
        selector = of_kind(objects, kind)["spec"]["selector"]["matchLabels"]
        assert selector.items() <= template["metadata"]["labels"].items()
    service = of_kind(objects, "Service")
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    config_map = of_kind(objects, "ConfigMap")
    (volume,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == "config")
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert load(config_map["data"]["config.yaml"]) == load(MANIFESTS / "base" / "config.yaml")
    account = of_kind(objects, "ServiceAccount")["metadata"]
    for obj in objects:
        for subject in obj.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


@needs_kubectl
def test_they_can_be_applied(tmp_path: Path) -> None:
    with api_server(tmp_path) as kubeconfig:
        applied = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS)).splitlines()
        assert len(applied) == 13
        assert all(line.endswith(" created") for line in applied)
        again = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "only-scheduler"))
        assert "role.rbac.authorization.k8s.io/koordsched-lease created" in again
        quotas = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-elastic-quota"))
        for created in (
            "customresourcedefinition.apiextensions.k8s.io/elasticquotas.scheduling.sigs.k8s.io",
            "customresourcedefinition.apiextensions.k8s.io/elasticquotaprofiles.quota.koordinator.sh",
            "clusterrole.rbac.authorization.k8s.io/koordsched-elastic-quota",
            "namespace/koordinator-system",
        ):
            assert f"{created} created" in quotas
        loads = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-load-aware"))
        assert "clusterrole.rbac.authorization.k8s.io/koordsched-load-aware created" in loads
        # The overlay before brought all definitions.
        assert "customresourcedefinition.apiextensions.k8s.io/nodemetrics.slo.koordinator.sh unchanged" in loads
        numa = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-numa"))
        assert "clusterrole.rbac.authorization.k8s.io/koordsched-numa created" in numa
        definition = "customresourcedefinition.apiextensions.k8s.io/noderesourcetopologies.topology.node.k8s.io"
        assert f"{definition} unchanged" in numa
        devices = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-devices"))
        assert "clusterrole.rbac.authorization.k8s.io/koordsched-devices created" in devices
        definition = "customresourcedefinition.apiextensions.k8s.io/devices.scheduling.koordinator.sh"
        assert f"{definition} unchanged" in devices
        reservations = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-reservations"))
        assert "clusterrole.rbac.authorization.k8s.io/koordsched-reservation created" in reservations
        definition = "customresourcedefinition.apiextensions.k8s.io/reservations.scheduling.koordinator.sh"
        assert f"{definition} unchanged" in reservations
        gangs = kubectl("--kubeconfig", kubeconfig, "apply", "-k", str(MANIFESTS / "with-gangs"))
        assert "clusterrole.rbac.authorization.k8s.io/koordsched-gangs created" in gangs
        definition = "customresourcedefinition.apiextensions.k8s.io/podgroups.scheduling.sigs.k8s.io"
        assert f"{definition} unchanged" in gangs
        pods = kubectl(
            "--kubeconfig",
            kubeconfig,
            "-n",
            "koordsched-system",
            "get",
            "deployment",
            "koordsched",
            "-o=jsonpath={.spec.template.spec.serviceAccountName}",
        )
        assert pods == "koordsched"
