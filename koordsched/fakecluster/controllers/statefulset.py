"""StatefulSet: pods with stable names and claims, made in order of their ordinals and updated in the reverse order.

Source of the rules: kube-controller-manager `pkg/controller/statefulset` (stateful_set_control.go).
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_reference, is_deleting, key_of
from koordsched.fakecluster.controllers.podowner import PodOwnerController, burst
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.podtemplate import PodFactory
from koordsched.fakecluster.controllers.revisions import REVISION_LABEL, RevisionHistory
from koordsched.fakecluster.errors import ApiStatusError

_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"


class StatefulSetController(PodOwnerController):
    """Keeps the pods, claims, revisions and the status of every StatefulSet up to date."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, context.stateful_sets, "apps/v1", "StatefulSet")
        self._history = RevisionHistory(context, "StatefulSet")

    def may_adopt(self, owner: Object, pod: PodRecord) -> bool:
        """Only a pod with a name that the set would have given it."""
        prefix = owner["metadata"]["name"] + "-"
        return pod.name.startswith(prefix) and pod.name[len(prefix) :].isdecimal()

    def reconcile(self, key: Key) -> int:
        """Makes or removes pods, then writes the status."""
        stateful_set = self.context.stateful_sets.get(key)
        if stateful_set is None:
            return 0
        if is_deleting(stateful_set):
            return self._update_status(key, None)
        writes = self.adoption.claim(stateful_set)
        update = self._history.current(stateful_set)["metadata"]["name"]
        failure: ApiStatusError | None = None
        try:
            writes += self._advance(stateful_set, update)
        except ApiStatusError as error:
            failure = error
        writes += self._update_status(key, update)
        if failure is not None:
            raise failure
        return writes

    def _pods(self, stateful_set: Object) -> dict[int, PodRecord]:
        prefix = stateful_set["metadata"]["name"] + "-"
        found: dict[int, PodRecord] = {}
        for pod in self.context.pods.owned_by(stateful_set["metadata"]["uid"]):
            ordinal = pod.name[len(prefix) :]
            if pod.name.startswith(prefix) and ordinal.isdecimal():
                found[int(ordinal)] = pod
        return found

    def _advance(self, stateful_set: Object, update: str) -> int:
        """Makes the next pods, removes those beyond the size, then replaces those of an earlier revision."""
        spec = stateful_set["spec"]
        ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        pods, writes = self._pods(stateful_set), 0
        wanted = _ordinals(stateful_set)
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is not None and pod.finished and not pod.deleting:
                self.context.delete_pod(pod)
                writes += 1
            elif pod is None:
                writes += self._create(stateful_set, ordinal, update)
            if writes >= burst(len(wanted)):
                self.queue.add(key_of(stateful_set))
                return writes
            if ordered and (pod is None or not self._healthy(stateful_set, pod)):
                return writes
        condemned = sorted((ordinal for ordinal in pods if ordinal not in wanted), reverse=True)
        for ordinal in condemned:
            pod = pods[ordinal]
            if not pod.deleting:
                writes += self.context.delete_pod(pod)
            if ordered:
                return writes
        return writes or self._update_one(stateful_set, pods, update)

    def _update_one(self, stateful_set: Object, pods: dict[int, PodRecord], update: str) -> int:
        strategy = stateful_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return 0
        first = _ordinals(stateful_set).start + _partition(stateful_set)
        for ordinal in reversed(_ordinals(stateful_set)):
            if ordinal < first:
                return 0
            pod = pods.get(ordinal)
            if pod is None:
                return 0
            if not pod.deleting and pod.labels.get(REVISION_LABEL) != update:
                return int(self.context.delete_pod(pod))
            if not self._healthy(stateful_set, pod):
                return 0
        return 0

    def _healthy(self, stateful_set: Object, pod: PodRecord) -> bool:
        """Running, ready for minReadySeconds and not terminating."""
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        if pod.deleting or pod.phase != "Running" or not pod.ready:
            return False
        if pod.available(min_ready, self.context.timestamp(ago=min_ready)):
            return True
        self.queue.add(key_of(stateful_set), 1.0 + min_ready / 4)
        return False

    def _create(self, stateful_set: Object, ordinal: int, update: str) -> int:
        context, spec, metadata = self.context, stateful_set["spec"], stateful_set["metadata"]
        revision, template = update, spec["template"]
        current = (stateful_set.get("status") or {}).get("currentRevision") or update
        if current != update and ordinal < _ordinals(stateful_set).start + _partition(stateful_set):
            earlier = self._history.template(stateful_set, current)
            if earlier is not None:
                revision, template = current, earlier
        name = f"{metadata['name']}-{ordinal}"
        writes = self._create_claims(stateful_set, ordinal)
        factory = PodFactory(
            template, metadata["namespace"], controller_reference(stateful_set, "apps/v1", "StatefulSet")
        )
        pod = factory.pod(name=name)
        labels = pod["metadata"].setdefault("labels", {})
        labels.update({REVISION_LABEL: revision, _NAME_LABEL: name, _INDEX_LABEL: str(ordinal)})
        pod["spec"]["hostname"] = name
        if spec.get("serviceName"):
            pod["spec"]["subdomain"] = spec["serviceName"]
        claims = {
            claim["metadata"]["name"]: _claim_name(stateful_set, claim, ordinal)
            for claim in spec.get("volumeClaimTemplates") or ()
        }
        if claims:
            others = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in claims]
            own = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
            pod["spec"]["volumes"] = [*own, *others]
        context.create_pod(pod)
        return writes + 1

    def _create_claims(self, stateful_set: Object, ordinal: int) -> int:
        context, namespace, writes = self.context, stateful_set["metadata"]["namespace"], 0
        labels = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            name = _claim_name(stateful_set, template, ordinal)
            if context.claims.get((namespace, name)) is not None:
                continue
            origin = template["metadata"]
            metadata: Object = {"name": name, "labels": {**(origin.get("labels") or {}), **labels}}
            if origin.get("annotations"):
                metadata["annotations"] = origin["annotations"]
            claim = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": template["spec"],
            }
            context.registry.create(context.claims.resource, namespace, claim)
            writes += 1
        return writes

    def _update_status(self, key: Key, update: str | None) -> int:
        # Read again: what was just made and deleted moved the index on.
        stateful_set = self.context.stateful_sets.get(key)
        if stateful_set is None:
            return 0
        old = stateful_set.get("status") or {}
        update = update or old.get("updateRevision", "")
        current = old.get("currentRevision") or update
        min_ready = stateful_set["spec"].get("minReadySeconds", 0)
        ready_before = self.context.timestamp(ago=min_ready)
        pods = list(self._pods(stateful_set).values())
        alive = [pod for pod in pods if pod.active]
        ready = [pod for pod in alive if pod.phase == "Running" and pod.ready]
        updated = sum(pod.labels.get(REVISION_LABEL) == update for pod in alive)
        size = len(_ordinals(stateful_set))
        if updated == size == len(ready) == len(pods):
            current = update
        status: Object = {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": sum(pod.available(min_ready, ready_before) for pod in ready),
            "currentReplicas": sum(pod.labels.get(REVISION_LABEL) == current for pod in alive),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": old.get("collisionCount") or 0,
        }
        kept = ("replicas", "availableReplicas", "collisionCount")
        status = {name: value for name, value in status.items() if value or name in kept}
        writes = self._history.truncate(stateful_set, {current, update})
        if status["availableReplicas"] < len(ready):
            self.queue.add(key, 1.0 + min_ready / 4)
        if status == old:
            return writes
        return writes + self.context.write_status(self.context.stateful_sets.resource, stateful_set, status)


def _ordinals(stateful_set: Object) -> range:
    spec = stateful_set["spec"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    return range(start, start + spec.get("replicas", 1))


def _partition(stateful_set: Object) -> int:
    rolling = (stateful_set["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    partition: int = rolling.get("partition") or 0
    return partition


def _claim_name(stateful_set: Object, template: Object, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{stateful_set['metadata']['name']}-{ordinal}"
