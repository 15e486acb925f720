"""Controllers adopt pods without a controller that match their selector, and release those that no longer match."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.ownership import (
    Key,
    Object,
    controller_reference,
    is_deleting,
    key_of,
    with_owners,
)
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.selectorindex import SelectorIndex, parse_selector


class PodAdoption:
    """The claims of the objects of one kind on the pods of their namespace."""

    def __init__(
        self,
        context: ControllerContext,
        api_version: str,
        kind: str,
        may_adopt: Callable[[Object, PodRecord], bool],
    ) -> None:
        self._context = context
        self._api_version = api_version
        self._kind = kind
        self._may_adopt = may_adopt
        self._selectors: SelectorIndex[Key] = SelectorIndex()

    def track(self, before: Object | None, after: Object | None) -> None:
        """Follows the selectors: called with every change of a controlling object."""
        known = after or before
        if known is not None:
            selector = parse_selector(after["spec"].get("selector")) if after is not None else None
            key = key_of(known)
            self._selectors.put(key, key[0], None if selector is not None and selector.empty else selector)

    @property
    def idle(self) -> bool:
        """Whether there is no controlling object that could adopt anything."""
        return not self._selectors

    def interested(self, pod: PodRecord) -> list[Key]:
        """The controlling objects that would adopt this pod."""
        return [] if pod.owner_uid or pod.deleting else self._selectors.matching(pod.namespace, pod.labels)

    def claim(self, owner: Object) -> int:
        """Adopts matching pods without a controller, releases owned ones that match no more; returns the writes."""
        key = key_of(owner)
        selector = self._selectors.selector(key)
        if selector is None or is_deleting(owner):
            return 0
        pods, writes = self._context.pods, 0
        for orphan_key in pods.orphans_matching(key[0], selector):
            record = pods.get(orphan_key)
            if record is not None and record.active and self._may_adopt(owner, record):
                writes += self._adopt(record, owner)
        for record in pods.owned_by(owner["metadata"]["uid"]):
            if not record.deleting and not selector.matches(record.labels):
                writes += self._release(record, owner["metadata"]["uid"])
        return writes

    def _adopt(self, record: PodRecord, owner: Object) -> int:
        pod = self._context.read_pod(record)
        if pod is None:
            return 0
        reference = controller_reference(owner, self._api_version, self._kind)
        references = [*(pod["metadata"].get("ownerReferences") or ()), reference]
        return self._set_owners(pod, references)

    def _release(self, record: PodRecord, uid: str) -> int:
        pod = self._context.read_pod(record)
        if pod is None:
            return 0
        references = [entry for entry in pod["metadata"].get("ownerReferences") or () if entry["uid"] != uid]
        return self._set_owners(pod, references)

    def _set_owners(self, pod: Object, references: list[Object]) -> int:
        metadata = with_owners(pod["metadata"], references)
        self._context.registry.update(self._context.pod_resource, {**pod, "metadata": metadata})
        return 1


def unclaimed_matches(candidates: Informer, owner: Object) -> list[Object]:
    """The objects of the owner's namespace that its selector matches and that no controller owns."""
    selector = parse_selector(owner["spec"].get("selector"))
    if selector is None or selector.empty:
        return []
    return [
        candidate
        for candidate in candidates.unowned_in(owner["metadata"].get("namespace", ""))
        if not is_deleting(candidate) and selector.matches(candidate["metadata"].get("labels") or {})
    ]
