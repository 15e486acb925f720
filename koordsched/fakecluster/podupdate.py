"""What an update may change about a pod (upstream: ValidatePodUpdate, ValidatePodStatusUpdate)."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.errors import FieldError, forbidden_field, invalid_value
from koordsched.fakecluster.podvalidation import selector_errors

Object = dict[str, Any]

_MUTABLE = ("image", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates")
_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_update_errors(new: Object, old: Object) -> list[FieldError]:
    """What a whole-object update (not of a subresource) may not do."""
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return []
    wrong: list[FieldError] = []
    gated = bool(before.get("schedulingGates"))
    left = {g.get("name") for g in spec.get("schedulingGates") or ()}
    added = left - {g.get("name") for g in before.get("schedulingGates") or ()}
    if added:
        names = ", ".join(sorted(str(n) for n in added))
        text = f"only deletion is allowed, but found new scheduling gate '{names}'"
        wrong.append(forbidden_field("spec.schedulingGates", text))
    deadline, earlier = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if earlier is not None and (deadline is None or deadline > earlier):
        text = f"must be less than or equal to previous value ({earlier})"
        wrong.append(invalid_value("spec.activeDeadlineSeconds", deadline, text))
    kept = spec.get("tolerations") or []
    if any(t not in kept for t in before.get("tolerations") or ()):
        wrong.append(
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    if _fixed(spec, gated) != _fixed(before, gated) or (
        gated and not (_tightens_selector(spec, before) and _tightens_affinity(spec, before))
    ):
        wrong.append(forbidden_field("spec", _RULE))
    return wrong


def _fixed(spec: Object, gated: bool) -> Object:
    """The part of a spec that no update may change; a gated pod may still narrow its node selection."""
    out = {k: v for k, v in spec.items() if k not in _MUTABLE and v is not None}
    for kind in ("containers", "initContainers"):
        if kind in out:
            out[kind] = [{k: v for k, v in c.items() if k != "image"} for c in out[kind]]
    if gated:
        out.pop("nodeSelector", None)
        affinity = {k: v for k, v in (out.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
        if affinity:
            out["affinity"] = affinity
    return out


def _tightens_selector(spec: Object, before: Object) -> bool:
    selector = spec.get("nodeSelector") or {}
    return all(selector.get(k) == v for k, v in (before.get("nodeSelector") or {}).items())


def _terms(spec: Object) -> list[Object] | None:
    needed = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return (needed.get("nodeSelectorTerms") or []) if needed else None


def _tightens_affinity(spec: Object, before: Object) -> bool:
    """Required terms may gain requirements, not lose any; absent ones may be set."""
    old, new = _terms(before), _terms(spec)
    if old is None:
        return True
    if new is None or len(new) != len(old):
        return False
    return all(
        all(e in (term.get(kind) or []) for e in earlier.get(kind) or ())
        for term, earlier in zip(new, old, strict=True)
        for kind in ("matchExpressions", "matchFields")
    )


def template_selector_errors(spec: Object, group_kind: str) -> list[FieldError]:
    """A workload's selector must be there, be valid, not be empty and select its own template."""
    from koordsched.fakecluster.errors import required
    from koordsched.fakecluster.selectors import label_test

    selector = spec.get("selector")
    wrong: list[FieldError] = []
    if selector is None:
        return [required("spec.selector")]
    selector_errors(selector, "spec.selector", wrong)
    if wrong:
        return wrong
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid_value("spec.selector", selector, f"empty selector is invalid for {group_kind}")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    test = label_test(selector)
    if test is not None and not test(labels):
        wrong.append(
            invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        )
    return wrong
