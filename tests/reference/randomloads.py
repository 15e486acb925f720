"""Random reports about nodes, and what nodes and pods may say about loads."""

import json

from koordsched.fakecluster.clock import rfc3339

THRESHOLDS, RAW = "scheduling.koordinator.sh/usage-thresholds", "node.koordinator.sh/raw-allocatable"
SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
SECONDS_AFTER = "scheduling.koordinator.sh/load-estimated-seconds-after-"
RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
TYPES = ("avg", "p50", "p90", "p95", "p99")
DURATIONS = ("5m0s", "10m0s", "30m0s")
DEVICE = "ex.com/gpu"
SCALED = [f"kubernetes.io/{band}-{name}" for band in ("batch", "mid") for name in ("cpu", "memory")]


class RandomLoads:
    """Builds and completes JSON objects from a seeded generator."""

    def __init__(self, rng):
        self.rng = rng

    def maybe(self, chance):
        return self.rng.random() < chance

    # --- arguments -------------------------------------------------------------------------------

    def args(self):
        """The plugin's arguments."""
        rng, made = self.rng, {}
        if self.maybe(0.3):
            made["filterExpiredNodeMetrics"] = self.maybe(0.5)
        if self.maybe(0.3):
            made["nodeMetricExpirationSeconds"] = rng.choice([60, 180, 300])
        if self.maybe(0.3):
            made["enableScheduleWhenNodeMetricsExpired"] = self.maybe(0.5)
        if self.maybe(0.4):
            made["estimatedScalingFactors"] = self.percentages(1, 100)
        factors = {"cpu", "memory", *made.get("estimatedScalingFactors", ())}
        if self.maybe(0.4):
            made["resourceWeights"] = {name: rng.randint(1, 100) for name in sorted(factors) if self.maybe(0.7)}
        if self.maybe(0.3):
            made["dominantResourceWeight"] = rng.randint(0, 100)
        if self.maybe(0.6):
            made["usageThresholds"] = self.percentages(0, 100)
        if self.maybe(0.4):
            made["prodUsageThresholds"] = self.percentages(0, 60)
        for name in ("prodUsageIncludeSys", "scoreAccordingProdUsage", "allowCustomizeEstimation"):
            if self.maybe(0.5):
                made[name] = True
        for name in ("estimatedSecondsAfterPodScheduled", "estimatedSecondsAfterInitialized"):
            if self.maybe(0.3):
                made[name] = rng.choice([0, 30, 120, 600])
        if self.maybe(0.4):
            made["aggregated"] = self.aggregated() | {
                "scoreAggregationType": rng.choice(["", *TYPES]),
                "scoreAggregatedDuration": rng.choice(["0s", *DURATIONS, "7m0s"]),
            }
        if self.maybe(0.2):
            made["supportedResources"] = [rng.choice([DEVICE, "ephemeral-storage"])]
        return made

    def percentages(self, low, high):
        """Some resources with percentages."""
        names = ("cpu", "memory", "cpu", "memory", "ephemeral-storage", DEVICE)
        return {self.rng.choice(names): self.rng.randint(low, high) for _ in range(self.rng.randint(1, 3))}

    def aggregated(self):
        """A section of arguments or of the annotation of a node."""
        rng = self.rng
        made = {
            "usageThresholds": self.percentages(0, 100) if self.maybe(0.8) else {},
            "usageAggregationType": rng.choice([*TYPES, *TYPES, ""]),
        }
        if self.maybe(0.8):
            made["usageAggregatedDuration"] = rng.choice(["0s", *DURATIONS, "7m0s"])
        return made

    # --- nodes -----------------------------------------------------------------------------------

    def on_node(self, node):
        """The node, perhaps with annotations."""
        annotations = dict(node["metadata"].get("annotations") or {})
        if self.maybe(0.4):
            own = {}
            if self.maybe(0.5):
                own["usageThresholds"] = self.percentages(0, 100)
            if self.maybe(0.3):
                own["prodUsageThresholds"] = self.percentages(0, 60)
            if self.maybe(0.4):
                own["aggregatedUsage"] = self.aggregated()
            annotations[THRESHOLDS] = self.rng.choice([json.dumps(own)] * 9 + ["{"])
        if self.maybe(0.2):
            raw = {"cpu": self.rng.choice(["1", "2500m"]), **({"memory": "3Gi"} if self.maybe(0.5) else {})}
            annotations[RAW] = self.rng.choice([json.dumps(raw)] * 5 + ["", "[", '{"cpu": "x"}'])
        return {**node, "metadata": {**node["metadata"], "annotations": annotations}}

    def metric(self, node, pods, now):
        """A report about a node with these pods, of which it knows some."""
        rng = self.rng
        status, spec = {}, {}
        if self.maybe(0.9):
            status["updateTime"] = rfc3339(
                now - rng.choice([0, 1, 5, 30, 59, 60, 61, 150, 179, 180, 181, 400, -10, -90])
            )
        if self.maybe(0.9):
            measured = {"nodeUsage": self.usage(node, 1.1)}
            if self.maybe(0.6):
                measured["systemUsage"] = self.usage(node, 0.2)
            if self.maybe(0.6):
                measured["aggregatedNodeUsages"] = [
                    {
                        "duration": duration,
                        "usage": {
                            kind: {"resources": {}} if self.maybe(0.15) else self.usage(node, 1.1)
                            for kind in TYPES
                            if self.maybe(0.8)
                        },
                    }
                    for duration in rng.sample(DURATIONS, rng.randint(1, 3))
                ]
            status["nodeMetric"] = measured
        if self.maybe(0.8):
            spec["metricCollectPolicy"] = (
                {"reportIntervalSeconds": rng.choice([30, 60, 120])} if self.maybe(0.9) else {}
            )
        listed = [pod for pod in pods if self.maybe(0.7)]
        status["podsMetric"] = [
            {
                "namespace": pod["metadata"]["namespace"],
                "name": pod["metadata"]["name"],
                "priority": rng.choice(["koord-prod", "koord-prod", "koord-mid", "koord-batch", ""]),
                "podUsage": self.usage(node, 0.2) if self.maybe(0.9) else {"resources": {}},
            }
            for pod in listed
        ]
        metadata = {"name": node["metadata"]["name"]}
        kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
        return {**kind, "metadata": metadata, "spec": spec, "status": status}

    def usage(self, node, most):
        """Up to this share of what the node has (of 16 CPUs if it does not say)."""
        resources = {"cpu": f"{self.rng.randint(0, int(16000 * most * self.rng.random()))}m"}
        resources["memory"] = self.rng.choice(
            [str(self.rng.randint(0, int(64 * 2**30 * most * self.rng.random()))), f"{self.rng.randint(0, 8)}Gi"]
        )
        if self.maybe(0.2):
            resources[DEVICE] = str(self.rng.randint(0, 8))
        if self.maybe(0.1):
            resources.pop(self.rng.choice(sorted(resources)))
        return {"resources": resources}

    # --- pods ------------------------------------------------------------------------------------

    def on_pod(self, pod, now):
        """The pod with limits, bands and conditions; on a node or not."""
        rng = self.rng
        metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
        labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
        if self.maybe(0.2):
            labels["koordinator.sh/priority-class"] = rng.choice(
                ["koord-prod", "koord-mid", "koord-batch", "koord-free", "else", ""]
            )
        if self.maybe(0.2):
            labels["koordinator.sh/qosClass"] = rng.choice(["LSE", "LSR", "LS", "BE", "SYSTEM", "else"])
        if self.maybe(0.4):
            spec["priority"] = rng.choice([9000, 9999, 10000, 7500, 5000, 5999, 3500, 6500])
        if self.maybe(0.2):
            annotations[SCALING_FACTORS] = rng.choice(['{"cpu": 110}', '{"cpu": 0, "memory": 50}', "{}", "x", ""])
        for which in ("pod-scheduled", "initialized"):
            if self.maybe(0.2):
                annotations[SECONDS_AFTER + which] = rng.choice(["0", "50", "1000", "-1", "x", ""])
        if self.maybe(0.05):
            annotations[RESERVE_POD] = rng.choice(["true", "false"])
        if self.maybe(0.1):
            owner = {"kind": rng.choice(["DaemonSet", "Job"]), "apiVersion": "apps/v1", "name": "o", "uid": "o"}
            metadata["ownerReferences"] = [owner]
        for containers in ("containers", "initContainers"):
            if containers in spec:
                spec[containers] = [self.container(each) for each in spec[containers]]
        if spec.get("resources") and self.maybe(0.5):
            spec["resources"] = {**spec["resources"], "limits": {"cpu": "3", "memory": "2Gi"}}
        status = dict(pod.get("status") or {})
        if spec.get("nodeName"):
            status["conditions"] = [
                {"type": kind, "status": rng.choice(["True", "True", "True", "False"]), "lastTransitionTime": moment}
                for kind in ("PodScheduled", "Initialized")
                if self.maybe(0.85)
                for moment in [rfc3339(now - rng.choice([0, 5, 30, 60, 61, 89, 120, 121, 200, 1000]))]
            ]
        metadata |= {"labels": labels, "annotations": annotations}
        return {**pod, "metadata": metadata, "spec": spec, "status": status}

    def container(self, container):
        """The container with limits, and requests of other bands."""
        rng = self.rng
        resources = container.get("resources") or {}
        requests, limits = dict(resources.get("requests") or {}), {}
        if self.maybe(0.2):
            requests[rng.choice(SCALED)] = rng.choice(["1000", "2500", "1Gi"])
        if self.maybe(0.5):
            limits["cpu"] = rng.choice(["100m", "1", "2500m", "333m"])
        if self.maybe(0.5):
            limits["memory"] = rng.choice(["100Mi", "1Gi", "1234567"])
        if self.maybe(0.1):
            limits[rng.choice(SCALED)] = rng.choice(["1500", "2Gi"])
        return {**container, "resources": {"requests": requests, "limits": limits}}
