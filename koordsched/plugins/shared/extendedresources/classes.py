"""Which DeviceClass stands for an extended resource (dra spec 3.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from koordsched.api.resource import DeviceClass
from koordsched.config.qualified_names import is_extended_resource
from koordsched.plugins.shared.moments import moment

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""In front of the name of a class: the resource that every class stands for."""

_NEVER = float("-inf")

Listener = Callable[[str], None]
"""Called with the name of a resource."""


@lru_cache(maxsize=1024)
def may_have_class(resource: str) -> bool:
    """Whether a resource of this name can be served by a class: an extended or an implicit one."""
    return resource.startswith(IMPLICIT_PREFIX) or is_extended_resource(resource)


def resources_of(device_class: DeviceClass) -> tuple[str, ...]:
    """The resources that a class stands for: the implicit one, and the one that it names, if any."""
    implicit = IMPLICIT_PREFIX + device_class.metadata.name
    explicit = device_class.spec.extended_resource_name
    return (implicit, explicit) if explicit and explicit != implicit else (implicit,)


class ClassesByResource:
    """All classes, by the resources they stand for; of several classes of one resource the newest counts.

    Of equally old ones the lowest name does. `version` grows with every change of a class.
    """

    __slots__ = ("_candidates", "_chosen", "_listeners", "version")

    def __init__(self) -> None:
        self._candidates: dict[str, dict[str, DeviceClass]] = {}
        self._chosen: dict[str, DeviceClass] = {}
        self._listeners: list[Listener] = []
        self.version = 0

    def get(self, resource: str) -> DeviceClass | None:
        """The class that stands for the resource."""
        return self._chosen.get(resource)

    def __contains__(self, resource: object) -> bool:
        return resource in self._chosen

    def on_change(self, listener: Listener) -> None:
        """Calls it for every resource whose class is another one from now on, is changed, or is gone."""
        self._listeners.append(listener)

    def class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A class appeared, changed or is gone (see `cluster.objects.Subscriber`)."""
        self.version += 1
        before = resources_of(old) if old is not None else ()
        after = resources_of(new) if new is not None else ()
        if old is not None:
            for resource in before:
                if resource not in after:
                    self._withdraw(resource, old.metadata.name)
        if new is not None:
            for resource in after:
                self._candidates.setdefault(resource, {})[new.metadata.name] = new
        for resource in dict.fromkeys((*before, *after)):
            self._choose(resource)

    def _withdraw(self, resource: str, name: str) -> None:
        candidates = self._candidates.get(resource, {})
        candidates.pop(name, None)
        if not candidates:
            self._candidates.pop(resource, None)

    def _choose(self, resource: str) -> None:
        """Looks at all classes of the resource: what the one that changed is worth depends on the others."""
        chosen = newest(self._candidates.get(resource, {}).values())
        if chosen is self._chosen.get(resource):
            return
        if chosen is None:
            del self._chosen[resource]
        else:
            self._chosen[resource] = chosen
        for listener in self._listeners:
            listener(resource)


def newest(classes: Iterable[DeviceClass]) -> DeviceClass | None:
    """The newest of some classes, by name among equally old ones; None of none."""
    return min(classes, key=_precedence, default=None)


def _precedence(device_class: DeviceClass) -> tuple[float, str]:
    created = moment(device_class.metadata.creation_timestamp)
    return -(_NEVER if created is None else created), device_class.metadata.name
