"""Role-based access control over the stored roles and bindings (upstream: plugin/pkg/auth/authorizer/rbac)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koordsched.fakecluster.auth import User
from koordsched.fakecluster.registry import Registry

Rule = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"


class Rbac:
    """Evaluates the roles and bindings of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cluster_roles = registry.resource(_GROUP, "v1", "clusterroles")
        self._roles = registry.resource(_GROUP, "v1", "roles")
        self._cluster_bindings = registry.resource(_GROUP, "v1", "clusterrolebindings")
        self._bindings = registry.resource(_GROUP, "v1", "rolebindings")

    def allowed(self, user: User, spec: dict[str, Any]) -> str:
        """Why the access that the review's `spec` describes is allowed; empty when it is not."""
        wanted = spec.get("resourceAttributes") or {}
        path = spec.get("nonResourceAttributes") or {}
        for binding, rule in self._grants(user, str(wanted.get("namespace") or "")):
            granted = _covers_path(rule, path) if path else _covers_resource(rule, wanted)
            if granted:
                return f'RBAC: allowed by {binding["kind"]} "{binding["metadata"]["name"]}"'
        return ""

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """Every rule granted to the user in a namespace."""
        return [rule for _, rule in self._grants(user, namespace)]

    def _grants(self, user: User, namespace: str) -> Iterator[tuple[dict[str, Any], Rule]]:
        bindings = [r.obj() for r in self._registry.scan(self._cluster_bindings)]
        if namespace:
            bindings += [r.obj() for r in self._registry.scan(self._bindings, namespace)]
        for binding in bindings:
            home = str(binding["metadata"].get("namespace") or "")
            if not any(_is_subject(s, user, home) for s in binding.get("subjects") or ()):
                continue
            reference = binding.get("roleRef") or {}
            roles = self._cluster_roles if reference.get("kind") == "ClusterRole" else self._roles
            role = self._registry.peek(roles, home, str(reference.get("name", "")))
            for rule in (role or {}).get("rules") or ():
                yield binding, rule


def _is_subject(subject: dict[str, Any], user: User, home: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    return bool(user.name == f"system:serviceaccount:{subject.get('namespace') or home}:{name}")


def _has(values: Any, wanted: str) -> bool:
    return wanted in (values or ()) or "*" in (values or ())


def _covers_resource(rule: Rule, wanted: dict[str, Any]) -> bool:
    resource, subresource = str(wanted.get("resource") or ""), str(wanted.get("subresource") or "")
    full = f"{resource}/{subresource}" if subresource else resource
    resources = rule.get("resources") or ()
    named = _has(resources, full) or (bool(subresource) and f"*/{subresource}" in resources)
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), str(wanted.get("verb") or ""))
        and _has(rule.get("apiGroups"), str(wanted.get("group") or ""))
        and named
        and (not names or wanted.get("name") in names)
    )


def _covers_path(rule: Rule, wanted: dict[str, Any]) -> bool:
    path = str(wanted.get("path") or "")
    if not _has(rule.get("verbs"), str(wanted.get("verb") or "")):
        return False
    return any(
        pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))
        for pattern in rule.get("nonResourceURLs") or ()
    )
