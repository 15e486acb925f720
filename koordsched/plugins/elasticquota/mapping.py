"""Which quota a pod belongs to (elasticquota spec 3.2).

A pod's claim is its label or else its namespace: pods with the same claim are always in the same quota.
"""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.plugins.elasticquota.kinds import DEFAULT_QUOTA, QUOTA_NAME, ROOT_QUOTA, SYSTEM_QUOTA

Claim = tuple[str, str]
"""("name", quota named by the label) or ("namespace", namespace of the pod)."""

BY_NAME, BY_NAMESPACE = "name", "namespace"


def claim_of(pod: Pod) -> Claim:
    """By what the pod asks for a quota."""
    name = pod.labels.labels.get(QUOTA_NAME)
    return (BY_NAME, name) if name else (BY_NAMESPACE, pod.namespace)


class QuotaNames:
    """The quotas there are, and the namespaces that belong to them.

    With `default` False (gate DisableDefaultQuota) only the label counts, and a pod may be without a quota.
    """

    def __init__(self, *, default: bool) -> None:
        self._default = default
        self._home: dict[str, str] = {}
        self._namespaces: dict[str, frozenset[str]] = {}
        self._annotated: dict[str, set[str]] = {}

    def define(self, name: str, home: str, namespaces: frozenset[str]) -> set[Claim]:
        """A quota is in namespace `home` and takes the pods of `namespaces`; returns the claims this may redirect."""
        if self._home.get(name) == home and self._namespaces.get(name) == namespaces:
            return set()
        changed = self.remove(name)
        self._home[name] = home
        self._namespaces[name] = namespaces
        for namespace in namespaces:
            self._annotated.setdefault(namespace, set()).add(name)
        return changed | self._claims_on(name)

    def remove(self, name: str) -> set[Claim]:
        """There is no such quota any more; returns the claims this may redirect."""
        if name not in self._home:
            return set()
        changed = self._claims_on(name)
        del self._home[name]
        for namespace in self._namespaces.pop(name):
            owners = self._annotated[namespace]
            owners.discard(name)
            if not owners:
                del self._annotated[namespace]
        return changed

    def _claims_on(self, name: str) -> set[Claim]:
        return {
            (BY_NAME, name),
            (BY_NAMESPACE, name),
            *((BY_NAMESPACE, namespace) for namespace in self._namespaces[name]),
        }

    def resolve(self, claim: Claim) -> str | None:
        """The name of the quota; None for none at all."""
        kind, value = claim
        fallback = DEFAULT_QUOTA if self._default else None
        if kind == BY_NAME:
            return value if self.knows(value) else fallback
        if not self._default:
            return None
        if self._home.get(value) == value and value != ROOT_QUOTA:
            return value
        owners = self._annotated.get(value)
        return min(owners) if owners else fallback

    def knows(self, name: str) -> bool:
        """Whether pods can be in a quota of this name."""
        return name != ROOT_QUOTA and (name in self._home or name in (DEFAULT_QUOTA, SYSTEM_QUOTA))
