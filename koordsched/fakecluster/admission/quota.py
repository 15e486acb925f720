"""ResourceQuotas for claims and their devices, and for extended resources of pods.

Admission refuses what a quota has no room for (apiserver: `plugin/pkg/admission/resourcequota`), and the status says
what is used (kube-controller-manager: `pkg/controller/resourcequota`). Both look at the same ledger, which follows the
objects of namespaces that have such quotas; other namespaces cost nothing. Limits of other things, and quotas with
scopes, which never are about claims, are stored and not enforced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from koordsched.api.quantity import QuantityError
from koordsched.fakecluster import errors
from koordsched.fakecluster.admission.quotausage import (
    Usage,
    follows,
    is_of_pod,
    owner_of_special,
    usage_of_claim,
    usage_of_pod,
)
from koordsched.fakecluster.errors import FieldError, invalid_value
from koordsched.fakecluster.quantities import amount, canonical, canonicalize
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy
from koordsched.fakecluster.subscriptions import Unsubscribe

Object = dict[str, Any]
_Entry = tuple[str, str]
"""(plural, name) of an object that counts."""


class _Ledger:
    """What the objects of one namespace count. `specials`: claims for extended resources, by the uid of their pod."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.limits: dict[str, Object] = {}
        self.entries: dict[_Entry, Usage] = {}
        self.specials: dict[str, set[str]] = {}
        self.used: Usage = Counter()

    def enter(self, entry: _Entry, usage: Usage) -> None:
        """What an object counts from now on; nothing takes it off the ledger."""
        before = self.entries.pop(entry, Counter())
        if usage:
            self.entries[entry] = usage
        self.used = (self.used - before) + usage


class QuotaAdmission:
    """The ledgers of all namespaces that have quotas of claims, devices or extended resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._quotas = registry.resource("", "v1", "resourcequotas")
        self._pods = registry.pods
        self._claims = registry.resource("resource.k8s.io", "v1", "resourceclaims")
        self._classes = registry.resource("resource.k8s.io", "v1", "deviceclasses")
        self._ledgers: dict[str, _Ledger] = {}
        self._resource_of: dict[str, str] = {}
        self._following: list[Unsubscribe] = []
        registry.subscribe_changes(self._quotas, self._quota_changed)

    # -- admission ------------------------------------------------------------------------------------------------

    def charge_claim(self, resource: Resource, claim: Object) -> None:
        """403 for a new claim for which a quota of its namespace has no room."""
        ledger = self._ledgers.get(claim["metadata"]["namespace"])
        if ledger is not None:
            self._charge(ledger, resource, claim, self._usage_of_claim(ledger, claim))

    def charge_pod(self, resource: Resource, pod: Object) -> None:
        """403 for a new pod that requests extended resources of which a quota of its namespace has too little."""
        ledger = self._ledgers.get(pod["metadata"]["namespace"])
        if ledger is not None:
            self._charge(ledger, resource, pod, usage_of_pod(pod))

    def _charge(self, ledger: _Ledger, resource: Resource, obj: Object, usage: Usage) -> None:
        for quota, hard in sorted(ledger.limits.items()):
            asked = {name: usage[name] for name in sorted(usage) if name in hard}
            over = [name for name in asked if ledger.used[name] + asked[name] > amount(hard[name])]
            if over:
                texts = (
                    ("requested", {name: canonical(str(asked[name])) for name in over}),
                    ("used", {name: canonical(str(ledger.used[name])) for name in over}),
                    ("limited", {name: hard[name] for name in over}),
                )
                said = ", ".join(f"{what}: {','.join(f'{k}={v}' for k, v in of.items())}" for what, of in texts)
                raise errors.forbidden(resource, obj["metadata"].get("name", ""), f"exceeded quota: {quota}, {said}")

    # -- the ledgers ----------------------------------------------------------------------------------------------

    def _quota_changed(self, change: ChangeView) -> None:
        namespace, name = change.record.key
        hard = _followed(change.new) if change.type != "DELETED" else {}
        ledger = self._ledgers.get(namespace)
        if hard:
            if ledger is None:
                self._follow()
                ledger = self._ledgers[namespace] = _Ledger(namespace)
                self._count(ledger)
            ledger.limits[name] = hard
            self._report(ledger, (name,))
        elif ledger is not None and ledger.limits.pop(name, None) is not None and not ledger.limits:
            del self._ledgers[namespace]
            if not self._ledgers:
                for stop in self._following:
                    stop()
                self._following.clear()

    def _follow(self) -> None:
        """Hears of classes, claims and pods from now on; all of them that there are, it looks up."""
        if self._following:
            return
        self._read_classes()
        followed = ((self._classes, self._class_changed), (self._claims, self._changed), (self._pods, self._changed))
        self._following = [self._registry.subscribe_changes(kind, hear, replay=False) for kind, hear in followed]

    def _count(self, ledger: _Ledger) -> None:
        for record in self._registry.scan(self._claims, ledger.namespace):
            self._enter_claim(ledger, record.obj())
        for record in self._registry.scan(self._pods, ledger.namespace):
            self._enter_pod(ledger, record.obj())

    def _read_classes(self) -> None:
        classes = ((record.name, record.obj()["spec"]) for record in self._registry.scan(self._classes))
        self._resource_of = {name: spec.get("extendedResourceName", "") for name, spec in classes}

    def _class_changed(self, change: ChangeView) -> None:
        before = self._resource_of
        self._read_classes()
        if self._resource_of != before:
            for ledger in self._ledgers.values():
                self._count(ledger)
                self._report(ledger, ledger.limits)

    def _changed(self, change: ChangeView) -> None:
        """A claim or a pod appeared, changed or went."""
        ledger = self._ledgers.get(change.record.namespace)
        if ledger is None:
            return
        before = ledger.used
        gone = change.type == "DELETED"
        if change.new["kind"] == self._claims.kind:
            self._enter_claim(ledger, change.new, gone=gone)
        else:
            self._enter_pod(ledger, change.new, gone=gone)
        if ledger.used != before:
            self._report(ledger, ledger.limits)

    def _enter_claim(self, ledger: _Ledger, claim: Object, *, gone: bool = False) -> None:
        name = claim["metadata"]["name"]
        owner = owner_of_special(claim)
        if owner is not None:
            of_pod = ledger.specials.setdefault(owner[1], set())
            of_pod.discard(name) if gone else of_pod.add(name)
            if not of_pod:
                del ledger.specials[owner[1]]
        usage = self._usage_of_claim(ledger, claim) if not gone else Counter()
        ledger.enter((self._claims.plural, name), usage)

    def _enter_pod(self, ledger: _Ledger, pod: Object, *, gone: bool = False) -> None:
        """Claims that are made for the pod count anew: less what it counts itself."""
        ledger.enter((self._pods.plural, pod["metadata"]["name"]), usage_of_pod(pod) if not gone else Counter())
        for name in sorted(ledger.specials.get(pod["metadata"]["uid"], ())):
            claim = self._registry.peek(self._claims, ledger.namespace, name)
            if claim is not None:
                self._enter_claim(ledger, claim)

    def _usage_of_claim(self, ledger: _Ledger, claim: Object) -> Usage:
        return usage_of_claim(claim, self._resource_of, self._usage_of_owner(ledger, claim))

    def _usage_of_owner(self, ledger: _Ledger, claim: Object) -> Usage:
        """What the pod counts that the claim is made for, if the claim is its own."""
        owner = owner_of_special(claim)
        if owner is None:
            return Counter()
        namespace = claim["metadata"]["namespace"]
        pod = self._registry.peek(self._pods, namespace, owner[0])
        if pod is None or pod["metadata"]["uid"] != owner[1]:
            return Counter()
        names = ledger.specials.get(owner[1], set()) - {claim["metadata"]["name"]}
        others = [other for name in names if (other := self._registry.peek(self._claims, namespace, name)) is not None]
        return usage_of_pod(pod) if is_of_pod(claim, pod, others) else Counter()

    # -- status ---------------------------------------------------------------------------------------------------

    def _report(self, ledger: _Ledger, quotas: Iterable[str]) -> None:
        for name in quotas:
            found = self._registry.peek(self._quotas, ledger.namespace, name)
            if found is None:
                continue
            hard = ledger.limits[name]
            status = {"hard": hard, "used": {of: canonical(str(ledger.used[of])) for of in hard}}
            if found.get("status") != status:
                self._registry.replace_status(self._quotas, ledger.namespace, name, status)


def _followed(quota: Object) -> Object:
    """The limits of a quota that are enforced here."""
    spec = quota.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return {}
    return {name: limit for name, limit in sorted((spec.get("hard") or {}).items()) if follows(name)}


class ResourceQuotaStrategy(Strategy):
    """core/v1 ResourceQuota."""

    def defaults(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        obj["status"] = {}

    def validate(self, obj: Object) -> list[FieldError]:
        hard = obj["spec"].get("hard") or {}
        wrong = canonicalize(hard, "spec.hard")
        for name, limit in hard.items():
            try:
                number = amount(limit)
            except (QuantityError, TypeError):
                continue
            if number < 0:
                wrong.append(invalid_value(f"spec.hard[{name}]", limit, "must be greater than or equal to 0"))
            elif follows(name) and number.denominator != 1:
                wrong.append(invalid_value(f"spec.hard[{name}]", limit, "must be an integer"))
        return wrong
