"""ControllerRevisions: the history of pod templates of StatefulSets and DaemonSets, for rollouts and rollbacks.

Source of the rules: kube-controller-manager `pkg/controller/history`.
"""

from __future__ import annotations

from collections.abc import Collection

import orjson

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.ownership import Object, controller_reference, key_of
from koordsched.fakecluster.controllers.podtemplate import template_hash

REVISION_LABEL = "controller-revision-hash"


class RevisionHistory:
    """The revisions of the objects of one kind."""

    def __init__(self, context: ControllerContext, kind: str) -> None:
        self._context = context
        self._kind = kind

    def current(self, owner: Object) -> Object:
        """The revision of the owner's present template, made when there is none and numbered above all others."""
        context, metadata = self._context, owner["metadata"]
        template = owner["spec"]["template"]
        data = {"spec": {"template": {**template, "$patch": "replace"}}}
        history = self.all(owner)
        newest = history[-1]["revision"] if history else 0
        equal = next((entry for entry in history if _canonical(entry.get("data")) == _canonical(data)), None)
        if equal is not None:
            if equal["revision"] < newest:
                equal = context.registry.update(context.revisions.resource, {**equal, "revision": newest + 1})
            return equal
        name = template_hash(template, (owner.get("status") or {}).get("collisionCount") or 0)
        labels = (template.get("metadata") or {}).get("labels") or {}
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{metadata['name']}-{name}",
                "namespace": metadata["namespace"],
                "labels": {**labels, REVISION_LABEL: name},
                "annotations": {
                    key: value
                    for key, value in (metadata.get("annotations") or {}).items()
                    if key != "kubectl.kubernetes.io/last-applied-configuration"
                },
                "ownerReferences": [controller_reference(owner, "apps/v1", self._kind)],
            },
            "data": data,
            "revision": newest + 1,
        }
        return context.registry.create(context.revisions.resource, metadata["namespace"], revision)

    def all(self, owner: Object) -> list[Object]:
        """The owner's revisions, oldest first."""
        return sorted(self._context.revisions.owned_by(owner["metadata"]["uid"]), key=lambda entry: entry["revision"])

    def template(self, owner: Object, name: str) -> Object | None:
        """The pod template of the revision of that name."""
        revision = self._context.revisions.get((owner["metadata"]["namespace"], name))
        if revision is None:
            return None
        template: Object = dict(revision["data"]["spec"]["template"])
        template.pop("$patch", None)
        return template

    def truncate(self, owner: Object, in_use: Collection[str]) -> int:
        """Deletes the oldest revisions beyond revisionHistoryLimit, none of those in use; returns the writes."""
        context = self._context
        unused = [entry for entry in self.all(owner) if entry["metadata"]["name"] not in in_use]
        surplus = unused[: max(0, len(unused) - int(owner["spec"].get("revisionHistoryLimit", 10)))]
        for entry in surplus:
            context.registry.delete(context.revisions.resource, *key_of(entry), uid=entry["metadata"]["uid"])
        return len(surplus)


def revision_hash(revision: Object) -> str:
    """The short hash that the pods of a DaemonSet's revision carry."""
    return str((revision["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def _canonical(data: Object | None) -> bytes:
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
