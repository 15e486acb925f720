"""status, scale, binding, eviction and the other paths below an object."""

from __future__ import annotations

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.auth import Authenticator, User
from koordsched.fakecluster.bodies import PATCH_TYPES, media_type, parse, part, read_json, texts
from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.deleteoptions import DeleteOptions
from koordsched.fakecluster.deviceapi.authorization import CLAIMS, ClaimStatusAuthorization
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.eviction import evict
from koordsched.fakecluster.messages import Request, Response, json_response
from koordsched.fakecluster.objectmeta import new_uid
from koordsched.fakecluster.patching import json_patch, merge_patch
from koordsched.fakecluster.registry import Permit, Registry
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.scale import ScalePaths, read_scale, scale_paths, write_replicas
from koordsched.fakecluster.verbs import Verbs, dry_run, success

_CONNECT = ("log", "exec", "attach", "portforward", "proxy")


class Subresources:
    """Answers requests to `…/{name}/{subresource}`."""

    def __init__(self, registry: Registry, verbs: Verbs, authenticator: Authenticator | None) -> None:
        self._registry = registry
        self._verbs = verbs
        self._authenticator = authenticator
        self._claim_statuses = ClaimStatusAuthorization(registry)

    def answer(
        self, request: Request, resource: Resource, namespace: str | None, name: str, subresource: str, user: User
    ) -> Response:
        """Dispatch on the subresource; 404 for one that the kind does not have."""
        if subresource not in resource.subresources:
            raise errors.no_such_path()
        if subresource == "binding":
            return self.bind(request, namespace or "", name)
        if subresource == "eviction":
            return self._evict(request, namespace or "", name)
        if subresource == "scale":
            return self._scale(request, resource, namespace, name)
        if subresource == "token":
            return self._token(request, namespace or "", name)
        if subresource in _CONNECT:
            return self._connect(resource, namespace, name, subresource)
        if request.method == "GET":
            return self._verbs.on_object(request, resource, namespace, name)
        permit = self._permit(request, resource, namespace, user) if subresource == "status" else None
        if request.method == "PUT":
            return self._verbs.update(request, resource, namespace, name, subresource, permit)
        if request.method == "PATCH":
            return self._verbs.patch(request, resource, namespace, name, subresource, permit)
        raise errors.method_not_allowed()

    def _permit(self, request: Request, resource: Resource, namespace: str | None, user: User) -> Permit | None:
        """What limits the user in writing a status; None if nothing does."""
        if resource.storage != CLAIMS or not self._registry.release.guards_claim_statuses:
            return None
        if self._authenticator is None or "system:masters" in user.groups:
            return None
        verb = "patch" if request.method == "PATCH" else "update"
        return self._claim_statuses.permit(user, verb, namespace or "")

    def bind(self, request: Request, namespace: str, name: str | None) -> Response:
        """POST of a Binding: to a pod's subresource, or (name None) to the bindings collection."""
        if request.method != "POST":
            raise errors.method_not_allowed()
        binding = read_json(request, "Binding")
        meta, target = part(binding, "metadata"), part(binding, "target")
        stated = str(meta.get("name") or "")
        wrong = []
        if target.get("kind") not in (None, "", "Node"):
            wrong.append(errors.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
        if not target.get("name"):
            wrong.append(errors.required("target.name"))
        if wrong:
            raise errors.invalid("", "Binding", stated, wrong)
        if name is not None and stated and stated != name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        node = str(target["name"])
        merged = texts(meta, "annotations"), texts(meta, "labels")
        self._registry.bind(namespace, name or stated, meta.get("uid"), node, *merged, dry_run(request))
        return json_response(_SUCCESS, 201)

    def _evict(self, request: Request, namespace: str, name: str) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        body = read_json(request, "Eviction")
        evict(self._registry, namespace, name, DeleteOptions(part(body, "deleteOptions"), dry_run(request)))
        return json_response(_SUCCESS, 201)

    def _scale(self, request: Request, resource: Resource, namespace: str | None, name: str) -> Response:
        registry = self._registry
        paths = scale_paths(registry, resource)
        if request.method == "GET":
            return json_response(read_scale(registry.get(resource, namespace, name), paths))
        if request.method == "PUT":
            wanted = read_json(request, "Scale")
        elif request.method == "PATCH":
            wanted = self._patched_scale(request, read_scale(registry.get(resource, namespace, name), paths))
        else:
            raise errors.method_not_allowed()
        return self._write_scale(request, resource, namespace, name, wanted, paths)

    def _patched_scale(self, request: Request, scale: Object) -> Object:
        kind = PATCH_TYPES.get(media_type(request))
        document = parse(request.body, "the patch", kind == "apply")
        if kind is None:
            raise errors.unsupported_media_type(media_type(request), tuple(PATCH_TYPES))
        patched = json_patch(scale, document) if kind == "json" else merge_patch(scale, document)
        if not isinstance(patched, dict):
            raise errors.bad_request("the patch does not leave an object")
        return patched

    def _write_scale(
        self, request: Request, resource: Resource, namespace: str | None, name: str, wanted: Object, paths: ScalePaths
    ) -> Response:
        replicas = part(wanted, "spec").get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            wrong = errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise errors.invalid("autoscaling", "Scale", name, [wrong])
        version = part(wanted, "metadata").get("resourceVersion")

        def change(obj: Object) -> Object:
            write_replicas(obj, paths, replicas)
            if version:
                obj["metadata"]["resourceVersion"] = version
            return obj

        record = self._registry.update_record(resource, namespace, name, change, "scale", dry_run(request))
        return json_response(read_scale(self._registry.owned(resource, record), paths))

    def _token(self, request: Request, namespace: str, name: str) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        registry = self._registry
        account = registry.record(registry.resource("", "v1", "serviceaccounts"), namespace, name)
        body = read_json(request, "TokenRequest") if request.body else {}
        spec = part(body, "spec")
        seconds = spec.get("expirationSeconds") or 3600
        if not isinstance(seconds, int) or not _SHORTEST_TOKEN <= seconds <= _LONGEST_TOKEN:
            text = "may not specify a duration less than 10 minutes or larger than 2^32 seconds"
            wrong = errors.invalid_value("spec.expirationSeconds", seconds, text)
            raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [wrong])
        token = f"sa-{new_uid(registry.rng)}"
        if self._authenticator is not None:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            self._authenticator.add(token, User(f"system:serviceaccount:{namespace}:{name}", groups, account.uid))
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"audiences": spec.get("audiences") or [], "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": rfc3339(registry.clock.now() + seconds)},
        }
        return json_response(answer, 201)

    def _connect(self, resource: Resource, namespace: str | None, name: str, subresource: str) -> Response:
        """Nodes are hollow: there is nothing to connect to, and the answer says so."""
        obj = self._registry.record(resource, namespace, name).obj()
        node = (obj.get("spec") or {}).get("nodeName") or name
        raise ApiStatusError(
            400,
            "BadRequest",
            f'{subresource} is not available: node "{node}" of this cluster is hollow and runs no containers',
        )


_SHORTEST_TOKEN = 600
_LONGEST_TOKEN = 1 << 32
"""Seconds (upstream: pkg/apis/authentication/validation)."""
_SUCCESS = orjson.dumps({**success(), "code": 201})
