"""Which server answers: whether it is an API server, and whether it is the same as before."""

from __future__ import annotations

import logging

import msgspec

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import ObjectMeta
from koordsched.client.errors import ClientError, raise_for_status
from koordsched.client.transport import Transport

log = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds for the answer."""

UID_TIMEOUT = 5.0
"""Seconds for that: a list waits for it."""


async def is_api_server(transport: Transport) -> bool:
    """A server without a version is not an API server; if we may not ask for it, an API server rejects us."""
    try:
        version = await transport.request("GET", "/version", timeout=TIMEOUT)
    except ClientError as error:
        log.debug("cannot read the version of the server: %s", error)
        return False
    return version.status == 403 or (version.status == 200 and b'"gitVersion"' in version.body)


class _Namespace(msgspec.Struct):
    metadata: ObjectMeta


class _Namespaces(msgspec.Struct):
    items: list[_Namespace] | None = None


_namespaces = Decoder(_Namespaces)


async def server_uid(transport: Transport) -> str:
    """What tells one cluster's storage from another: the uid of its namespace kube-system; empty if it is unknown.

    Read as a list, which schedulers have the right to.
    """
    query = {"fieldSelector": "metadata.name=kube-system"}
    try:
        response = await transport.request("GET", "/api/v1/namespaces", query=query, timeout=UID_TIMEOUT)
        found = _namespaces(raise_for_status(response).body)
    except (ClientError, DecodeError) as error:
        log.debug("cannot read which server it is: %s", error)
        return ""
    return found.items[0].metadata.uid if found.items else ""
