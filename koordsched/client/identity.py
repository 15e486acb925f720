"""Whether it is an API server that answers, or something that stands in its place."""

from __future__ import annotations

import logging

from koordsched.client.errors import ClientError
from koordsched.client.transport import Transport

log = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds for the answer."""


async def is_api_server(transport: Transport) -> bool:
    """Who has no version is no API server; who may not ask for it is refused by a server all the same."""
    try:
        version = await transport.request("GET", "/version", timeout=TIMEOUT)
    except ClientError as error:
        log.debug("cannot read the version of the server: %s", error)
        return False
    return version.status == 403 or (version.status == 200 and b'"gitVersion"' in version.body)
