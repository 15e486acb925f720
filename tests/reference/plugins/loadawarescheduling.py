"""LoadAwareScheduling (loadaware spec 2 and 3), per node and per pod.

A world may say what time it is, and what objects alone do not say: `first_seen`, uid -> when a pod was seen on its node
for the first time, and `last_update`, node -> the time of an earlier report if the newest has none.
"""

import contextlib
import json
import math
from datetime import datetime
from fractions import Fraction

from tests.reference.quantity import in_units_of, parse
from tests.reference.status import Status

NOW = 1_900_000_000.0
DEFAULTS = {"cpu": 250, "batch-cpu": 250, "memory": 200 * 2**20, "batch-memory": 200 * 2**20}
BANDS = {"prod": range(9000, 10000), "mid": range(7000, 8000), "batch": range(5000, 6000), "free": range(3000, 4000)}
NEVER = -math.inf


class LoadAwareScheduling:
    """Refuses nodes by what they use, prefers those that use least."""

    def __init__(self, args):
        self.args = args
        self.factors = {"cpu": 85, "memory": 70, **(args.get("estimatedScalingFactors") or {})}
        self.dominant = args.get("dominantResourceWeight", 0)
        self.weights = args.get("resourceWeights") or ({} if self.dominant else {"cpu": 1, "memory": 1})
        self.usage = args.get("usageThresholds") or {"cpu": 65, "memory": 95}
        self.prod = args.get("prodUsageThresholds") or {}
        self.aggregated = args.get("aggregated") or {}
        names = {"cpu", "memory", *self.usage, *self.prod, *self.weights, *self.factors}
        names |= {*(self.aggregated.get("usageThresholds") or {}), *args.get("supportedResources", ())}
        self.resources = sorted(names)

    # --- filter and score ------------------------------------------------------------------------

    def filter(self, pod, node, world):
        """Spec 3.3, step by step."""
        if any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ()):
            return None
        usage, prod, aggregated = self._thresholds(node)
        by_prod = band_of(pod) == "prod" and self._matters(prod)
        thresholds = prod if by_prod else aggregated["usageThresholds"] if aggregated else usage
        if not self._matters(thresholds):
            return None
        metric = metric_of(node, world)
        if metric is None:
            return None
        if self.args.get("filterExpiredNodeMetrics", True) and self._expired(metric, world):
            if self.args.get("enableScheduleWhenNodeMetricsExpired", False):
                return None
            return Status("Unschedulable", ("node(s) nodeMetric expired",))
        if metric["status"].get("nodeMetric") is None:
            return None
        statistic = None
        if not by_prod and aggregated:
            statistic = aggregated["usageAggregationType"], duration(aggregated.get("usageAggregatedDuration"))
        used = self._used(node, metric, world, by_prod, statistic)
        more = self.estimate(pod)
        for name in self.resources:
            threshold, total = thresholds.get(name, 0), total_of(node, name)
            if not threshold or not total:
                continue
            percent = half_away(float(used[name] + more[name]) / float(total) * 100)
            if percent > threshold:
                which = "aggregated usage" if statistic else "usage"
                return Status("Unschedulable", (f"node(s) {name} {which} exceed threshold",))
        return None

    def score(self, pod, node, world, nodes):
        """Spec 3.4."""
        metric = metric_of(node, world)
        if not (any(self.weights.values()) or self.dominant):
            return 0
        if metric is None or self._expired(metric, world) or metric["status"].get("nodeMetric") is None:
            return 0
        by_prod = self.args.get("scoreAccordingProdUsage", False) and band_of(pod) == "prod"
        statistic = None
        if not by_prod and self.aggregated.get("scoreAggregationType"):
            statistic = (
                self.aggregated["scoreAggregationType"],
                duration(self.aggregated.get("scoreAggregatedDuration")),
            )
        used = self._used(node, metric, world, by_prod, statistic)
        more = self.estimate(pod)
        shares = {}
        for name in self.resources:
            total, estimated = total_of(node, name), used[name] + more[name]
            shares[name] = 0 if total == 0 or estimated > total else (total - estimated) * 100 // total
        weighted = sum(shares[name] * weight for name, weight in self.weights.items())
        scarcest = min(100, *shares.values())
        return (weighted + scarcest * self.dominant) // (sum(self.weights.values()) + self.dominant)

    def _matters(self, thresholds):
        return any(thresholds.get(name, 0) for name in self.resources)

    def _thresholds(self, node):
        """(usage, prod, aggregated or None), the node's annotation considered."""
        text = node["metadata"].get("annotations", {}).get("scheduling.koordinator.sh/usage-thresholds")
        own = {}
        if text is not None:
            try:
                own = json.loads(text)
            except ValueError:
                own = {}
        usage = own.get("usageThresholds") or self.usage
        prod = own.get("prodUsageThresholds") or self.prod
        for section in (own.get("aggregatedUsage") or {}, self.aggregated):
            if section.get("usageThresholds") and section.get("usageAggregationType"):
                return usage, prod, section
        return usage, prod, None

    def _expired(self, metric, world):
        updated = seconds(metric["status"].get("updateTime"))
        if updated is None:
            return True
        return now_of(world) - updated >= self.args.get("nodeMetricExpirationSeconds", 180)

    # --- what is used ----------------------------------------------------------------------------

    def _used(self, node, metric, world, by_prod, statistic):
        """Spec 3.1, Used."""
        sums = self.sums(node, metric, world)
        if by_prod:
            return added(sums["prod_usage"], sums["prod_delta"])
        node_metric = metric["status"]["nodeMetric"]
        measured = self._vector(node_metric.get("nodeUsage"))
        if statistic is not None:
            kind, period = statistic
            found = self._statistic(node_metric, kind, period)
            if found is None and period:
                return sums["estimated"]
            if found is not None:
                measured = found
        return added(measured, sums["node_delta"])

    def _statistic(self, node_metric, kind, period):
        reported = [
            (duration(entry.get("duration")), (entry.get("usage") or {}).get(kind) or {})
            for entry in node_metric.get("aggregatedNodeUsages") or ()
        ]
        reported = [(length, usage) for length, usage in reported if usage.get("resources")]
        if period:
            reported = [each for each in reported if each[0] == period]
        if not reported:
            return None
        return self._vector(max(reported, key=lambda each: each[0])[1])

    def sums(self, node, metric, world):
        """The sums of what the pods of a node contribute: {name of the sum: {resource: amount}}."""
        sums = {
            name: dict.fromkeys(self.resources, 0) for name in ("prod_usage", "node_delta", "prod_delta", "estimated")
        }
        if self.args.get("prodUsageIncludeSys", False):
            sums["prod_usage"] = self._vector((metric["status"].get("nodeMetric") or {}).get("systemUsage"))
        # Neither nominated pods nor victims make a difference, nor do pods whose place is taken over.
        for pod in getattr(world.origin, "measured", world.origin).pods_on(node):
            for name, amounts in self._contribution(pod, node, metric, world).items():
                sums[name] = added(sums[name], amounts)
        return sums

    def _contribution(self, pod, node, metric, world):
        meta = pod["metadata"]
        if (meta.get("annotations") or {}).get("scheduling.koordinator.sh/reserve-pod") == "true":
            return {}
        reported = None
        for entry in metric["status"].get("podsMetric") or ():
            resources = (entry.get("podUsage") or {}).get("resources")
            if (entry.get("namespace"), entry.get("name")) == (meta["namespace"], meta["name"]) and resources:
                reported = entry
        used = self._vector(reported["podUsage"]) if reported else dict.fromkeys(self.resources, 0)
        is_prod = band_of(pod) == "prod"
        active = is_prod and reported is not None and reported.get("priority") == "koord-prod"
        found = {"prod_usage": used} if active else {}
        estimate = self.estimate(pod)
        if not any(estimate.values()):
            return found
        policy = metric.get("spec", {}).get("metricCollectPolicy") or {}
        updated = seconds(metric["status"].get("updateTime"))
        if updated is None:
            updated = getattr(world.origin, "last_update", {}).get(node["metadata"]["name"], NEVER)
        placed, until = self._times(pod, world)
        fresh = reported is None or updated - policy.get("reportIntervalSeconds", 60) < placed
        fresh = fresh or (until is not None and until > updated)
        found["estimated"] = estimate
        if fresh:
            found["node_delta"] = {name: max(0, estimate[name] - used[name]) for name in self.resources}
        if is_prod and reported is not None and not active:
            found["prod_delta"] = estimate
        elif is_prod and fresh:
            found["prod_delta"] = {name: max(0, estimate[name] - used[name]) for name in self.resources}
        return found

    def _times(self, pod, world):
        """When it was placed, and until when its estimate holds (None: no such time)."""
        since = {
            each["type"]: seconds(each.get("lastTransitionTime"))
            for each in pod.get("status", {}).get("conditions") or ()
            if each["status"] == "True"
        }
        placed = since.get("PodScheduled")
        if placed is None:
            placed = getattr(world.origin, "first_seen", {}).get(pod["metadata"]["uid"], now_of(world))
        after = {}
        for what, argument in (
            ("pod-scheduled", "estimatedSecondsAfterPodScheduled"),
            ("initialized", "estimatedSecondsAfterInitialized"),
        ):
            own = self._customized(pod, f"load-estimated-seconds-after-{what}")
            after[what] = int(own) if own and own.isdecimal() else self.args.get(argument) or 0
        if after["initialized"] > 0 and since.get("Initialized") is not None:
            return placed, since["Initialized"] + after["initialized"]
        return placed, placed + after["pod-scheduled"] if after["pod-scheduled"] > 0 else None

    def _vector(self, usage):
        resources = (usage or {}).get("resources") or {}
        return {name: in_units_of(name, parse(resources.get(name, 0))) for name in self.resources}

    # --- estimates -------------------------------------------------------------------------------

    def _customized(self, pod, key):
        if not self.args.get("allowCustomizeEstimation", False):
            return None
        return (pod["metadata"].get("annotations") or {}).get(f"scheduling.koordinator.sh/{key}")

    def estimate(self, pod):
        """Spec 3.1, EstimatePod."""
        factors = dict(self.factors)
        own = self._customized(pod, "load-estimated-scaling-factors")
        if own:
            with contextlib.suppress(ValueError):
                factors |= json.loads(own)
        found = dict.fromkeys(self.resources, 0)
        band = band_of(pod)
        for name in self.resources:
            asked_as = translated(band, name)
            if name not in factors or not asked_as:
                continue
            limit = in_units_of(asked_as, pod_total(pod, "limits").get(asked_as, 0))
            asked = max(limit, in_units_of(asked_as, pod_total(pod, "requests").get(asked_as, 0)))
            if asked == 0:
                found[name] = DEFAULTS.get(asked_as.removeprefix("kubernetes.io/"), 0)
                continue
            found[name] = half_away(Fraction(asked * factors[name], 100))
            if limit > 0:
                found[name] = min(found[name], limit)
        return found


def translated(band, name):
    """What pods of a band request the resource as; None if they cannot."""
    if band == "prod":
        return name
    if band in ("batch", "mid") and name in ("cpu", "memory"):
        return f"kubernetes.io/{band}-{name}"
    return None


def pod_total(pod, which):
    """Pod-level total of requests or limits, as fractions."""
    spec, total, sidecars, peaks = pod["spec"], {}, {}, []
    for container in spec.get("containers") or ():
        total = added(total, amounts_of(container, which))
    for container in spec.get("initContainers") or ():
        own = amounts_of(container, which)
        if container.get("restartPolicy") == "Always":
            total, sidecars = added(total, own), added(sidecars, own)
            peaks.append(sidecars)
        else:
            peaks.append(added(sidecars, own))
    for peak in peaks:
        total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in total | peak}
    of_pod = amounts_of(spec, which)
    total |= {name: n for name, n in of_pod.items() if name in ("cpu", "memory") or name.startswith("hugepages-")}
    for name, amount in (spec.get("overhead") or {}).items():
        if which == "requests" or total.get(name):
            total[name] = total.get(name, 0) + parse(amount)
    return total


def amounts_of(holder, which):
    listed = (holder.get("resources") or {}).get(which) or {}
    return {name: parse(quantity) for name, quantity in listed.items()}


def added(first, second):
    return {name: first.get(name, 0) + second.get(name, 0) for name in first | second}


def half_away(value):
    """Rounded to the nearest integer, halves away from zero; of numbers that are not negative."""
    whole = math.floor(value)
    return whole + 1 if value - whole >= Fraction(1, 2) else whole


def band_of(pod):
    """The priority class of a pod (spec 2.2): `prod`, `mid`, `batch` or `free`."""
    labels = pod["metadata"].get("labels") or {}
    if "koordinator.sh/priority-class" in labels:
        named = labels["koordinator.sh/priority-class"].removeprefix("koord-")
        if named in BANDS and labels["koordinator.sh/priority-class"] == f"koord-{named}":
            return named
    elif pod["spec"].get("priority") is not None:
        for name, priorities in BANDS.items():
            if pod["spec"]["priority"] in priorities:
                return name
    qos = labels.get("koordinator.sh/qosClass")
    if qos in ("LSE", "LSR", "LS", "SYSTEM"):
        return "prod"
    return "batch" if qos == "BE" or is_best_effort(pod) else "prod"


def is_best_effort(pod):
    """Whether neither the pod, where it says anything as a whole, nor a container asks for CPU or memory."""
    spec = pod["spec"]
    holders = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if spec.get("resources") is not None:
        holders = [spec]
    amounts = [amounts_of(holder, which) for holder in holders for which in ("requests", "limits")]
    return not any(each.get(name, 0) > 0 for each in amounts for name in ("cpu", "memory"))


def metric_of(node, world):
    """The report about a node, None if there is none."""
    name = node["metadata"]["name"]
    return next((metric for metric in world.kind("NodeMetric") if metric["metadata"]["name"] == name), None)


def total_of(node, name):
    """Allocatable, the raw one where there is one."""
    amounts = dict(node["status"].get("allocatable") or {})
    raw = (node["metadata"].get("annotations") or {}).get("node.koordinator.sh/raw-allocatable")
    if raw:
        with contextlib.suppress(ValueError):
            amounts |= {key: quantity for key, quantity in json.loads(raw).items() if parse(quantity) is not None}
    return in_units_of(name, parse(amounts.get(name, 0)))


def now_of(world):
    return getattr(world.origin, "now", NOW)


def seconds(text):
    """Seconds since the epoch, None for no time."""
    return datetime.fromisoformat(text).timestamp() if text else None


def duration(text):
    """Seconds of `1h5m0s`; 0 for none."""
    total, number = 0, ""
    for character in text or "0":
        if character in "hms":
            total += int(number) * {"h": 3600, "m": 60, "s": 1}[character]
            number = ""
        else:
            number += character
    return total
