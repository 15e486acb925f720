"""Token reviews and access reviews: what components with delegated authentication and authorization ask.

Tokens are authenticated by the server's own list. Authorization follows the stored RBAC objects for users outside
system:masters, when the server has tokens at all; without tokens everything is allowed.
"""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster import errors
from koordsched.fakecluster.auth import Authenticator, User
from koordsched.fakecluster.bodies import read_object
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.rbac import Rbac
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Object, Resource


class Reviews:
    """Answers the review kinds."""

    def __init__(self, registry: Registry, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator
        self._rbac = Rbac(registry)

    def answer(self, request: Request, resource: Resource, user: User) -> Object:
        """The review with its status filled in. 404 for a kind that is no review."""
        review = read_object(request, resource, [])
        spec = review.get("spec") or {}
        review.setdefault("metadata", {})
        review |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource.kind == "TokenReview":
            review["status"] = self._token_status(str(spec.get("token", "")))
        elif resource.kind == "SelfSubjectReview":
            review["status"] = {"userInfo": user.info()}
        elif resource.kind == "SelfSubjectAccessReview":
            review["status"] = self._access(user, spec)
        elif resource.kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
            subject = User(str(spec.get("user", "")), tuple(spec.get("groups") or ()))
            if not subject.name and not subject.groups:
                wrong = errors.required("spec.user", "at least one of user or group must be specified")
                raise errors.invalid(resource.group, resource.kind, "", [wrong])
            review["status"] = self._access(subject, spec)
        elif resource.kind == "SelfSubjectRulesReview":
            everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            rules = everything if self._may_all(user) else self._rbac.rules(user, str(spec.get("namespace", "")))
            review["status"] = {
                "resourceRules": [r for r in rules if r.get("resources")],
                "nonResourceRules": [r for r in rules if r.get("nonResourceURLs")],
                "incomplete": False,
            }
        else:
            raise errors.no_such_path()
        return review

    def _token_status(self, token: str) -> Object:
        user = self._authenticator.user(token) if self._authenticator is not None else None
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.info()}

    def _may_all(self, user: User) -> bool:
        return self._authenticator is None or "system:masters" in user.groups

    def _access(self, user: User, spec: dict[str, Any]) -> Object:
        if self._may_all(user):
            return {"allowed": True}
        reason = self._rbac.allowed(user, spec)
        return {"allowed": True, "reason": reason} if reason else {"allowed": False}
