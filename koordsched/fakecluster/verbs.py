"""The verbs on collections and objects."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.apply import applier
from koordsched.fakecluster.bodies import PATCH_TYPES, check, media_type, parse, read_json, read_object, report_unknown
from koordsched.fakecluster.deleteoptions import DeleteOptions
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.listing import Page, Pager, integer, list_body, list_head, resource_version
from koordsched.fakecluster.messages import Request, Response, json_response
from koordsched.fakecluster.patching import patcher
from koordsched.fakecluster.registry import Permit, Registry
from koordsched.fakecluster.representation import (
    PARTIAL,
    PARTIAL_LIST,
    PLAIN,
    TABLE,
    Representation,
    encoder,
    negotiate,
)
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.selectors import compile_selectors
from koordsched.fakecluster.store import Record
from koordsched.fakecluster.table import columns_of, table
from koordsched.fakecluster.watch import Frame, WatchGroup, WatchHub, frame

_MIN_WATCH_SECONDS = 1800.0
_TRUE = ("true", "1", "t", "T", "TRUE", "True")
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Verbs:
    """Get, list, watch, create, update, patch, delete."""

    def __init__(self, registry: Registry, hub: WatchHub, rng: random.Random) -> None:
        self._registry = registry
        self._hub = hub
        self._rng = rng
        self._pager = Pager(registry.store)

    # -- collections ----------------------------------------------------------------------------------------------

    def on_collection(self, request: Request, resource: Resource, namespace: str | None) -> Response:
        """GET (list or watch), POST, DELETE on a collection."""
        method = request.method
        if method == "POST" and "create" in resource.verbs:
            return self.create(request, resource, namespace)
        if method == "GET" and "list" in resource.verbs:
            if request.query.get("watch") in _TRUE:
                return self.watch(request, resource, namespace)
            return self.list_objects(request, resource, namespace)
        if method == "DELETE" and "deletecollection" in resource.verbs:
            return self.delete_collection(request, resource, namespace)
        raise errors.method_not_allowed()

    def _selected(self, request: Request, resource: Resource, namespace: str | None) -> Page:
        query = request.query
        matches = compile_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        return self._pager.page(self._registry.collection(resource), namespace, matches, query)

    def list_objects(self, request: Request, resource: Resource, namespace: str | None) -> Response:
        """A list, in the form the client accepts."""
        wanted = negotiate(request)
        page = self._selected(request, resource, namespace)
        if wanted.form == TABLE:
            registry = self._registry
            objects = [registry.owned(resource, r) for r in page.records]
            answer = table(
                columns_of(registry, resource), objects, wanted.include, registry.clock.now(), str(page.rv),
                page.continue_token, page.remaining,
            )  # fmt: skip
            return json_response(answer)
        if wanted.form == PARTIAL:
            head = list_head("meta.k8s.io/v1", PARTIAL_LIST, page)
        else:
            head = list_head(resource.api_version, resource.list_kind, page)
        body = list_body(head, page.records, encoder(self._registry, resource, wanted))
        return Response(200, {"content-type": "application/json"}, body)

    def delete_collection(self, request: Request, resource: Resource, namespace: str | None) -> Response:
        """Delete everything selected; answers with the list of what was there."""
        options = _delete_options(request)
        page = self._selected(request, resource, namespace)
        for record in page.records:
            try:
                self._registry.delete_record(
                    resource,
                    record.namespace,
                    record.name,
                    options.grace,
                    None,
                    None,
                    options.propagation,
                    options.dry_run,
                )
            except ApiStatusError as refusal:
                if refusal.code not in (404, 409):
                    raise
        head = list_head(resource.api_version, resource.list_kind, page)
        body = list_body(head, page.records, encoder(self._registry, resource, Representation()))
        return Response(200, {"content-type": "application/json"}, body)

    # -- watch ----------------------------------------------------------------------------------------------------

    def watch(self, request: Request, resource: Resource, namespace: str | None) -> Response:
        """A stream of changes from a resourceVersion, or of the present state and what follows."""
        if "watch" not in resource.verbs:
            raise errors.method_not_allowed()
        query, registry = request.query, self._registry
        collection = registry.collection(resource)
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        matches = compile_selectors(resource, labels, fields)
        wanted = negotiate(request)
        since = resource_version(query)
        initial_wanted = query.get("sendInitialEvents", "")
        bookmarks = query.get("allowWatchBookmarks") in _TRUE
        _check_initial(query, bookmarks, registry.release.streams_lists)
        if initial_wanted in _TRUE:
            replay_state = True
            if since and since > registry.store.rv:
                raise errors.too_large(since, registry.store.rv)
        else:
            replay_state = not since and not initial_wanted
            if since and since < collection.compacted:
                return _stream_error(errors.too_old(since, collection.compacted))
            if since and since > registry.store.rv:
                # A version from another life of this server: only a new list can help the client.
                return _stream_error(errors.too_old(since, registry.store.rv))
        encode = encoder(registry, resource, wanted)
        epoch = registry.resource_epoch if wanted.form != PLAIN else 0
        encoding = f"{wanted.form} {wanted.include} {resource.api_version} {epoch}"

        def initial(group: WatchGroup) -> Sequence[Frame] | AsyncIterator[bytes]:
            if replay_state:
                records = [r for r in collection.scan(namespace) if matches is None or matches(r)]
                last = None
                if initial_wanted in _TRUE:
                    last = self._bookmark(resource, wanted.form, {INITIAL_EVENTS_END: "true"})
                return _added(records, encode, last)
            if not since:
                return ()
            frames = [group.encoded(change) for change in collection.since(since)]
            return [f for f in frames if f is not None]

        timeout = integer(query, "timeoutSeconds") or _MIN_WATCH_SECONDS * (1.0 + self._rng.random())
        stream = self._hub.open(
            (resource.storage, id(collection), namespace, labels, fields, encoding),
            collection,
            lambda: WatchGroup(namespace, matches, encode, encoding),
            float(timeout),
            (lambda: self._bookmark(resource, wanted.form)) if bookmarks else None,
            initial,
        )
        return Response(200, {"content-type": "application/json"}, stream)

    def _bookmark(self, resource: Resource, form: str, annotations: dict[str, str] | None = None) -> Frame:
        meta: dict[str, Any] = {"resourceVersion": str(self._registry.store.rv), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        if form == TABLE:
            obj = {"kind": TABLE, "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": [], "rows": []}
            obj["rows"] = [{"cells": [], "object": {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": meta}}]
        elif form == PARTIAL:
            obj |= {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1"}
        return frame("BOOKMARK", orjson.dumps(obj))

    # -- objects --------------------------------------------------------------------------------------------------

    def on_object(self, request: Request, resource: Resource, namespace: str | None, name: str) -> Response:
        """GET, PUT, PATCH, DELETE on an object."""
        method = request.method
        if method == "GET" and "get" in resource.verbs:
            record = self._registry.record(resource, namespace, name)
            return json_response(encoder(self._registry, resource, negotiate(request))(record))
        if method == "PUT" and "update" in resource.verbs:
            return self.update(request, resource, namespace, name)
        if method == "PATCH" and "patch" in resource.verbs:
            return self.patch(request, resource, namespace, name)
        if method == "DELETE" and "delete" in resource.verbs:
            return self.delete(request, resource, namespace, name)
        raise errors.method_not_allowed()

    def _written(
        self, request: Request, resource: Resource, record: Record, warnings: list[str], status: int = 200
    ) -> Response:
        response = json_response(encoder(self._registry, resource, negotiate(request))(record), status)
        if warnings:
            response.headers["warning"] = ", ".join(f"299 - {orjson.dumps(w).decode()}" for w in warnings)
        return response

    def create(self, request: Request, resource: Resource, namespace: str | None) -> Response:
        """POST."""
        warnings: list[str] = []
        obj = read_object(request, resource, warnings, opaque=True)
        if not resource.definition:
            self._prune(resource, obj, request, warnings)
        record = self._registry.create_record(resource, namespace, obj, dry_run(request))
        return self._written(request, resource, record, warnings, 201)

    def _prune(self, resource: Resource, obj: Object, request: Request, warnings: list[str]) -> None:
        unknown = self._registry.strategy(resource).prune(resource, obj)
        if unknown:
            report_unknown(resource, unknown, request.query.get("fieldValidation", "Warn"), warnings)

    def update(
        self,
        request: Request,
        resource: Resource,
        namespace: str | None,
        name: str,
        subresource: str = "",
        permit: Permit | None = None,
    ) -> Response:
        """PUT. `permit` says what the user may not change."""
        warnings: list[str] = []
        obj = read_object(request, resource, warnings)
        if not resource.definition:
            self._prune(resource, obj, request, warnings)
        record = self._registry.update_record(
            resource, namespace, name, lambda _: obj, subresource, dry_run(request), permit
        )
        return self._written(request, resource, record, warnings)

    def patch(
        self,
        request: Request,
        resource: Resource,
        namespace: str | None,
        name: str,
        subresource: str = "",
        permit: Permit | None = None,
    ) -> Response:
        """PATCH of any kind; a server-side apply creates what does not exist. `permit` as for `update`."""
        kind = PATCH_TYPES.get(media_type(request))
        if kind is None:
            raise errors.unsupported_media_type(media_type(request), tuple(PATCH_TYPES))
        warnings: list[str] = []
        document = parse(request.body, "the patch", kind == "apply")
        if kind == "apply":
            manager = request.query.get("fieldManager", "")
            if not manager:
                wrong = errors.required("fieldManager", "is required for apply patch")
                raise errors.invalid("meta.k8s.io", "PatchOptions", "", [wrong])
            force = request.query.get("force") in _TRUE
            change = applier(self._registry, resource, document, manager, subresource, force)
            if self._registry.collection(resource).get(namespace or "", name) is None and not subresource:
                fresh = change({})
                fresh.setdefault("metadata", {}).setdefault("name", name)
                obj = self._checked(fresh, request, resource, warnings)
                record = self._registry.create_record(resource, namespace, obj, dry_run(request))
                return self._written(request, resource, record, warnings, 201)
        else:
            change = patcher(resource, kind, document)
        record = self._registry.update_record(
            resource,
            namespace,
            name,
            self._then_checked(change, request, resource, warnings),
            subresource,
            dry_run(request),
            permit,
        )
        return self._written(request, resource, record, warnings)

    def _then_checked(
        self, change: Callable[[Object], Object], request: Request, resource: Resource, warnings: list[str]
    ) -> Callable[[Object], Object]:
        return lambda obj: self._checked(change(obj), request, resource, warnings)

    def _checked(self, obj: Object, request: Request, resource: Resource, warnings: list[str]) -> Object:
        validation = request.query.get("fieldValidation", "Warn")
        obj = check(orjson.dumps(obj), resource, validation, warnings)
        if not resource.definition:
            self._prune(resource, obj, request, warnings)
        return obj

    def delete(self, request: Request, resource: Resource, namespace: str | None, name: str) -> Response:
        """DELETE: the object while it terminates (or for kinds that answer so), else a Status."""
        options = _delete_options(request)
        record, gone = self._registry.delete_record(
            resource, namespace, name, options.grace, options.uid, options.rv, options.propagation, options.dry_run
        )
        if gone and not self._registry.strategy(resource).returns_deleted:
            details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": record.uid}
            return json_response(success({k: v for k, v in details.items() if v}))
        return json_response(self._registry.body(resource, record))


def success(details: dict[str, Any] | None = None) -> Object:
    """A `Status` of success."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    return status


def dry_run(request: Request) -> bool:
    """Whether the write is only tried. 400 for any value but All."""
    value = request.query.get("dryRun", "")
    if value not in ("", "All"):
        raise errors.bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
    return value == "All"


def _delete_options(request: Request) -> DeleteOptions:
    body = read_json(request, "DeleteOptions") if request.body else {}
    return DeleteOptions(body, dry_run(request), request.query)


def _check_initial(query: Any, bookmarks: bool, streams_lists: bool) -> None:
    """The rules of sendInitialEvents (apimachinery `ValidateListOptions`)."""
    if not query.get("sendInitialEvents"):
        return
    match = query.get("resourceVersionMatch", "")
    wrong = []
    if not streams_lists:
        text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        wrong.append(errors.forbidden_field("sendInitialEvents", text))
    elif match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        wrong.append(errors.forbidden_field("resourceVersionMatch", text))
    if streams_lists and query["sendInitialEvents"] in _TRUE and not bookmarks:
        wrong.append(
            errors.forbidden_field("allowWatchBookmarks", "sendInitialEvents requires setting allowWatchBookmarks")
        )
    if wrong:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", wrong)


def _stream_error(refusal: ApiStatusError) -> Response:
    """A watch that has begun says 410 in the stream, as the real server's watch cache does."""
    body = b"".join(frame("ERROR", orjson.dumps(refusal.status())))

    async def stream() -> AsyncIterator[bytes]:
        yield body

    return Response(200, {"content-type": "application/json"}, stream())


async def _added(
    records: Sequence[Record], encode: Callable[[Record], bytes], last: Frame | None
) -> AsyncIterator[bytes]:
    """The present state as ADDED events, some hundred at a time, so that a big one is never held whole."""
    for start in range(0, len(records), 200):
        yield b"".join([piece for r in records[start : start + 200] for piece in frame("ADDED", encode(r))])
    if last is not None:
        yield b"".join(last)
