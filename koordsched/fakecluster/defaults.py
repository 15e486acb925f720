"""Defaults of pod specs and of the workloads that carry them (upstream: pkg/apis/core/v1/defaults.go, …)."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def default_pod_spec(spec: Object) -> None:
    """Fill a pod spec, of a pod or of a template, in place."""
    setdefault = spec.setdefault
    setdefault("restartPolicy", "Always")
    setdefault("terminationGracePeriodSeconds", 30)
    setdefault("dnsPolicy", "ClusterFirst")
    setdefault("securityContext", {})
    setdefault("schedulerName", "default-scheduler")
    host_network = bool(spec.get("hostNetwork"))
    for container in spec.get("containers") or ():
        _default_container(container, host_network)
    for container in spec.get("initContainers") or ():
        _default_container(container, host_network)
    for container in spec.get("ephemeralContainers") or ():
        _default_container(container, False)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("maxSkew", 1)


def _default_container(container: Object, host_network: bool) -> None:
    setdefault = container.setdefault
    setdefault("terminationMessagePath", "/dev/termination-log")
    setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort") and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(kind)
        if probe is not None:
            _default_probe(probe)
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source and source.get("fieldRef"):
            source["fieldRef"].setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Object) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(key):
            probe[key] = value
    if probe.get("httpGet") is not None:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


_MODE = 0o644


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
        return
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        source = volume.get(kind)
        if source is not None:
            source.setdefault("defaultMode", _MODE)
            _default_items(source)
            for projection in source.get("sources") or ():
                if projection.get("serviceAccountToken") is not None:
                    projection["serviceAccountToken"].setdefault("expirationSeconds", 3600)
                if projection.get("downwardAPI") is not None:
                    _default_items(projection["downwardAPI"])
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    if volume.get("ephemeral") is not None:
        claim = (volume["ephemeral"].get("volumeClaimTemplate") or {}).get("spec")
        if claim is not None:
            claim.setdefault("volumeMode", "Filesystem")


def _default_items(source: Object) -> None:
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            item["fieldRef"].setdefault("apiVersion", "v1")


def default_requests(spec: Object) -> None:
    """Requests that are missing are taken from limits, container by container and for the pod as a whole, in place."""
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            _requests_from_limits(container.get("resources"))
    _requests_from_limits(spec.get("resources"))


def _requests_from_limits(resources: Object | None) -> None:
    limits = resources.get("limits") if resources else None
    if limits and resources is not None:
        requests = resources.get("requests")
        if requests is None:
            requests = resources["requests"] = {}
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def default_template(spec: Object) -> None:
    """Fill the pod template of a workload, in place."""
    template = spec.get("template")
    if template is None:
        return
    template.setdefault("metadata", {})
    if template.get("spec") is not None:
        default_pod_spec(template["spec"])


def default_deployment(spec: Object) -> None:
    """apps/v1 Deployment."""
    default_template(spec)
    for key, value in (("replicas", 1), ("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
        spec.setdefault(key, value)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def default_replica_set(spec: Object) -> None:
    """apps/v1 ReplicaSet."""
    default_template(spec)
    spec.setdefault("replicas", 1)


def default_stateful_set(spec: Object) -> None:
    """apps/v1 StatefulSet."""
    default_template(spec)
    for key, value in (("replicas", 1), ("revisionHistoryLimit", 10), ("podManagementPolicy", "OrderedReady")):
        spec.setdefault(key, value)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim.setdefault("status", {"phase": "Pending"})


def default_daemon_set(spec: Object) -> None:
    """apps/v1 DaemonSet."""
    default_template(spec)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


def default_job(spec: Object) -> None:
    """batch/v1 Job."""
    default_template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    if spec.get("backoffLimitPerIndex") is None:
        spec.setdefault("backoffLimit", 6)
    else:
        spec.setdefault("backoffLimit", 2**31 - 1)


def default_cron_job(spec: Object) -> None:
    """batch/v1 CronJob."""
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    job = (spec.get("jobTemplate") or {}).get("spec")
    if job is not None:
        default_template(job)
