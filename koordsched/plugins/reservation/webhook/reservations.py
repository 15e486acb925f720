"""What profiles make of a new Reservation. Gate ReservationMutatingWebhook.

Source: koordinator `pkg/webhook/reservation/mutating/cluster_colocation_profile.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from koordsched.api.strategicmerge import PatchError, Schema, strategic_merge
from koordsched.plugins.reservation.kinds import PRIORITY
from koordsched.plugins.reservation.webhook.colocation import ColocationProfile, Failed, PriorityClass
from koordsched.plugins.shared.priorityclass import QOS_CLASS

Object = dict[str, Any]


def _merged(key: str, **members: Schema) -> Schema:
    """A list whose elements are told apart by a key."""
    return {
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": key,
        "items": {"properties": members},
    }


_META: Schema = {
    "properties": {
        "finalizers": {"x-kubernetes-patch-strategy": "merge"},
        "ownerReferences": _merged("uid"),
    }
}
_CONTAINERS = _merged(
    "name",
    env=_merged("name"),
    ports=_merged("containerPort"),
    volumeDevices=_merged("devicePath"),
    volumeMounts=_merged("mountPath"),
)
_CLAIM_TEMPLATE: Schema = {"properties": {"volumeClaimTemplate": {"properties": {"metadata": _META}}}}
POD_TEMPLATE: Schema = {
    "properties": {
        "metadata": _META,
        "spec": {
            "properties": {
                "containers": _CONTAINERS,
                "initContainers": _CONTAINERS,
                "ephemeralContainers": _CONTAINERS,
                "hostAliases": _merged("ip"),
                "imagePullSecrets": _merged("name"),
                "resourceClaims": _merged("name"),
                "schedulingGates": _merged("name"),
                "topologySpreadConstraints": _merged("topologyKey"),
                "volumes": _merged("name", ephemeral=_CLAIM_TEMPLATE),
            }
        },
    }
}
"""Which lists of a pod template are merged, not replaced, and by which key."""
_RESERVATION: Schema = {"properties": {"metadata": _META, "spec": {"properties": {"template": POD_TEMPLATE}}}}


def mutated(
    reservation: Object,
    profiles: Iterable[ColocationProfile],
    priority_classes: Mapping[str, PriorityClass],
    draw: Callable[[], int],
) -> Object:
    """A new Reservation (JSON) after all profiles that select it, in the order of their names; the argument stays.

    `priority_classes`: by name. `draw`: a random number from 0 to 99. Raises Failed.
    """
    labels = _strings(reservation.get("metadata"), "labels")
    selecting = [profile for profile in profiles if profile.selects(labels)]
    for profile in sorted(selecting, key=lambda profile: profile.metadata.name):
        if profile.drawn(draw):
            reservation = _with_profile(reservation, profile, priority_classes)
    return reservation


def _with_profile(
    reservation: Object, profile: ColocationProfile, priority_classes: Mapping[str, PriorityClass]
) -> Object:
    spec = profile.spec
    meta = reservation.get("metadata") or {}
    labels = _mapped(_strings(meta, "labels") | spec.labels, spec.label_keys_mapping)
    for key, suffix in spec.label_suffixes.items():
        if key in labels:
            labels[key] += suffix
    if spec.qos_class:
        labels[QOS_CLASS] = spec.qos_class
    if spec.koordinator_priority is not None:
        labels[PRIORITY] = str(spec.koordinator_priority)
    annotations = _mapped(_strings(meta, "annotations") | spec.annotations, spec.annotation_keys_mapping)
    changed = {"labels": labels} if labels else {}
    if annotations:
        changed["annotations"] = annotations
    reservation = {**reservation, "metadata": {**meta, **changed}} if changed else dict(reservation)
    of_pod = _of_pod(spec.scheduler_name, spec.priority_class_name, priority_classes)
    template = (reservation.get("spec") or {}).get("template")
    if of_pod and isinstance(template, dict):
        pod = {key: value for key, value in ((template.get("spec") or {}) | of_pod).items() if value is not None}
        reservation["spec"] = {**reservation["spec"], "template": {**template, "spec": pod}}
    if spec.patch is None:
        return reservation
    try:
        return strategic_merge(reservation, spec.patch, _RESERVATION)
    except PatchError as error:
        raise Failed(str(error)) from None


def _of_pod(scheduler: str, priority_class: str, priority_classes: Mapping[str, PriorityClass]) -> dict[str, Any]:
    """Fields of the template's pod; None for one that is to go."""
    fields: dict[str, Any] = {"schedulerName": scheduler} if scheduler else {}
    if priority_class:
        found = priority_classes.get(priority_class)
        if found is None:
            raise Failed(f'PriorityClass.scheduling.k8s.io "{priority_class}" not found')
        fields["priorityClassName"] = priority_class
        fields["priority"] = found.value
        fields["preemptionPolicy"] = found.preemption_policy
    return fields


def _strings(holder: Any, field: str) -> dict[str, str]:
    return dict((holder or {}).get(field) or {})


def _mapped(values: dict[str, str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Each new key has the value of the old one, or none."""
    for old, new in sorted(mapping.items()):
        values[new] = values.get(old, "")
    return values
