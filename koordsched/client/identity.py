"""Whether the server that answers is an API server, or something in front of it."""

from __future__ import annotations

import logging

from koordsched.client.errors import ClientError
from koordsched.client.transport import Transport

log = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds for the answer."""


async def is_api_server(transport: Transport) -> bool:
    """A server without a version is not an API server; if we may not ask for it, an API server rejects us."""
    try:
        version = await transport.request("GET", "/version", timeout=TIMEOUT)
    except ClientError as error:
        log.debug("cannot read the version of the server: %s", error)
        return False
    return version.status == 403 or (version.status == 200 and b'"gitVersion"' in version.body)
