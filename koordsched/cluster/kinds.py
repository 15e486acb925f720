"""What a kind of object is. A kind declares everything about itself where it is defined, which registers it.

Kubernetes' own kinds are in `cluster.builtinkinds`, a plugin's custom resources in the plugin's `kinds` module. Loading
files, journals and dumps, watching, and the roles in `manifests/` go by the registry. `koordsched.plugins.KINDS` is the
registry with the kinds of all plugins in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from koordsched.api.core import PodSpec
from koordsched.api.meta import HasMetadata
from koordsched.cluster.events import EventResource

T = TypeVar("T", bound=HasMetadata)


def every_pod(spec: PodSpec) -> bool:
    """For `Need.concerns`: all pods."""
    return True


def no_pod(spec: PodSpec) -> bool:
    """For `Need.concerns`: none."""
    return False


class Need(NamedTuple):
    """What waits while a kind must not be read: pods of profiles with one of these plugins that `concerns` accepts.

    `plugins` are named in order of preference: events that one waits for make its pods be tried again. None: of all
    profiles. `consequence` completes "until it can be read, ..."; `holds_preemption`: that is what it is needed for.
    """

    plugins: tuple[str, ...]
    concerns: Callable[[PodSpec], bool]
    consequence: str
    holds_preemption: bool = False


NOTHING_WAITS = Need((), no_pod, "what it is used for (preferences, or background work) is skipped")

_registered: dict[str, Kind[Any]] = {}
"""By path."""


class Kind(Generic[T]):
    """A kind of object: where the API serves it, its wire type, and what it means to the scheduler.

    `type` bears the name of the kind. `event` is the event resource of its changes, None for kinds whose changes wake
    no pod by themselves. `packed`: there are many large objects that are hardly read again, so they are kept encoded
    (`cluster.objects.PackedStore`). `verbs` are the scheduler's requests besides list and watch: subresource ("" for
    the object itself) -> verbs of RBAC. `need`: what waits while the API server does not let us read the kind.
    `scheduled`: a plugin, the first of `need`, makes virtual pods of its objects, which have a pod template at
    `spec.template`, and a node only by their status.
    """

    __slots__ = ("api_version", "event", "namespaced", "need", "packed", "plural", "scheduled", "type", "verbs")

    def __init__(
        self,
        api_version: str,
        plural: str,
        kind: type[T],
        event: EventResource | None = None,
        *,
        namespaced: bool = True,
        verbs: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        need: Need = NOTHING_WAITS,
        packed: bool = False,
        scheduled: bool = False,
    ) -> None:
        """Registers the kind. Raises ValueError if there is one at the same path."""
        self.api_version = api_version
        self.plural = plural
        self.type = kind
        self.event = event
        self.namespaced = namespaced
        self.verbs = verbs
        self.need = need
        self.packed = packed
        self.scheduled = scheduled
        if self.path in _registered:
            raise ValueError(f"{self.path} is defined twice")
        _registered[self.path] = self

    @property
    def name(self) -> str:
        """The `kind` of its objects."""
        return self.type.__name__

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def api(self) -> str:
        """The path of group and version, without a slash in front."""
        return f"apis/{self.api_version}" if self.group else f"api/{self.api_version}"

    @property
    def path(self) -> str:
        """The path of the collection, over all namespaces."""
        return f"/{self.api}/{self.plural}"

    def object_path(self, namespace: str, name: str) -> str:
        """The path of one object; the namespace of cluster-wide kinds is ""."""
        return f"/{self.api}/namespaces/{namespace}/{self.plural}/{name}" if self.namespaced else f"{self.path}/{name}"

    def title(self, name: str) -> str:
        """What users call a cluster-wide object, as kubectl does: `kind/name`."""
        return f"{self.name.lower()}/{name}"

    @property
    def full_name(self) -> str:
        """`plural.group`, which is no name of a namespace."""
        return f"{self.plural}.{self.group}"

    def __repr__(self) -> str:
        return f"Kind({self.path})"


def kind_at(path: str) -> Kind[Any] | None:
    """The kind whose collection has this path, if it is registered."""
    return _registered.get(path)


def scheduled_object(text: str) -> tuple[Kind[Any], str] | None:
    """The kind and the name if the text refers to an object that is scheduled as pods are: `reservation/NAME`.

    The kind may be in singular or plural, or `plural.group`.
    """
    word, slash, name = text.partition("/")
    for kind in _registered.values():
        if kind.scheduled and slash and word.lower() in (kind.name.lower(), kind.plural, kind.full_name):
            return kind, name
    return None


def registered() -> list[Kind[Any]]:
    """The kinds defined so far; `koordsched.plugins.KINDS` has those of all plugins."""
    return list(_registered.values())
