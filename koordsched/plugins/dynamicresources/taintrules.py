"""Taints of DeviceTaintRules on the devices of slices (dra spec 3.3), behind the gate DRADeviceTaintRules."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from koordsched.api.resource import Device, DeviceTaintRule, ResourceSlice
from koordsched.cluster.objects import Store, Subscriber


class TaintedSlices:
    """The slices with the taints of rules appended to those of their devices.

    `changed(old, new)` gets every change of a slice; `retainted(old, new)`, after it, those that a rule caused.
    """

    def __init__(
        self,
        slices: Store[ResourceSlice],
        rules: Store[DeviceTaintRule],
        changed: Subscriber[ResourceSlice],
        retainted: Callable[[ResourceSlice, ResourceSlice], None],
    ) -> None:
        self._slices = slices
        self._rules = rules
        self._changed = changed
        self._retainted = retainted
        self._tainted: dict[str, ResourceSlice] = {}
        rules.subscribe(self._rule_changed)
        slices.subscribe(self._slice_changed)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        meta = (new or old or ResourceSlice()).metadata
        before = self._tainted.pop(meta.name, None)
        after = self._with_taints(new) if new is not None else None
        if after is not None:
            self._tainted[meta.name] = after
        self._changed(before, after)

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        concerned = [rule for rule in (old, new) if rule is not None]
        for name, before in list(self._tainted.items()):
            if not any(_may_match(rule, before) for rule in concerned):
                continue
            plain = self._slices.get("", name)
            assert plain is not None, "what is tainted is known"
            after = self._with_taints(plain)
            if after != before:
                self._tainted[name] = after
                self._changed(before, after)
                self._retainted(before, after)

    def _with_taints(self, plain: ResourceSlice) -> ResourceSlice:
        rules = [rule for rule in self._rules if _may_match(rule, plain)]
        if not rules:
            return plain
        rules.sort(key=lambda rule: rule.metadata.name)
        devices = tuple(_tainted(device, rules) for device in plain.spec.devices)
        return replace(plain, spec=replace(plain.spec, devices=devices))


def _may_match(rule: DeviceTaintRule, found: ResourceSlice) -> bool:
    """Whether the rule selects devices of the slice's pool."""
    selector = rule.spec.device_selector
    return selector is None or (
        selector.driver in (None, found.spec.driver) and selector.pool in (None, found.spec.pool.name)
    )


def _tainted(device: Device, rules: list[DeviceTaintRule]) -> Device:
    taints = tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is None or rule.spec.device_selector.device in (None, device.name)
    )
    return replace(device, taints=device.taints + taints) if taints else device
