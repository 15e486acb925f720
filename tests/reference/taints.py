"""Taints and tolerations (default-plugins spec 3.1)."""


def tolerates(toleration, taint):
    if toleration.get("effect", "") not in ("", taint["effect"]):
        return False
    if toleration.get("key", "") not in ("", taint["key"]):
        return False
    operator = toleration.get("operator", "")
    if operator == "Exists":
        return True
    return operator in ("", "Equal") and toleration.get("value", "") == taint.get("value", "")


def untolerated(pod, taints, effects):
    """The taints with one of the effects that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or []
    return [t for t in taints if t["effect"] in effects and not any(tolerates(own, t) for own in tolerations)]


def taints_of(node):
    return node.get("spec", {}).get("taints") or []
