"""Which resources are served."""

from __future__ import annotations

from koordsched.fakecluster import errors
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.resources import Resource, builtin_resources


class Catalog:
    """The resources by path and by kind: the built-in ones from the start, custom ones as they come and go."""

    def __init__(self) -> None:
        self.resource_epoch = 0
        """Grows whenever a resource begins or ends to be served."""
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._kinds: dict[tuple[str, str], Resource] = {}
        for resource in builtin_resources():
            self.serve(resource)

    def serve(self, resource: Resource) -> None:
        """Begin to serve a resource, replacing the one at the same group, version and plural."""
        self._resources[(resource.group, resource.version, resource.plural)] = resource
        self._kinds[(resource.api_version, resource.kind)] = resource
        self.resource_epoch += 1

    def withdraw(self, resource: Resource) -> None:
        """No longer serve a resource."""
        self._resources.pop((resource.group, resource.version, resource.plural), None)
        self._kinds.pop((resource.api_version, resource.kind), None)
        self.resource_epoch += 1

    def resources(self) -> list[Resource]:
        """Everything served, in order of registration."""
        return list(self._resources.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource, or None when it is not served."""
        return self._resources.get((group, version, plural))

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """The resource; 404 when it is not served."""
        found = self._resources.get((group, version, plural))
        if found is None:
            raise errors.no_such_path()
        return found

    def resource_for_kind(self, api_version: str, kind: str) -> Resource:
        """The resource that serves a kind; 404 when there is none."""
        found = self._kinds.get((api_version, kind))
        if found is None:
            raise ApiStatusError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return found
