"""The three quotas that are always there: made where they are missing (elasticquota spec 2.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from koordsched.cluster.objects import Store
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.elasticquota.kinds import (
    ALLOW_LENT_RESOURCE,
    DEFAULT_QUOTA,
    ELASTIC_QUOTAS,
    IS_PARENT,
    PARENT,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
)

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between attempts while the server refuses."""


def built_in_objects(
    namespace: str, default_max: Mapping[str, str], system_max: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Root, system and default quota, in the order in which they are made."""
    root = {IS_PARENT: "true", ALLOW_LENT_RESOURCE: "false", PARENT: ""}
    return [
        _quota(namespace, ROOT_QUOTA, {}, root),
        _quota(namespace, SYSTEM_QUOTA, {"max": dict(system_max)}, {}),
        _quota(namespace, DEFAULT_QUOTA, {"max": dict(default_max)}, {}),
    ]


async def ensure_built_in(objects: list[dict[str, Any]], store: Store[Any], writes: ObjectWrites) -> None:
    """Creates the missing objects, retrying until it succeeds. Existing ones are not changed."""
    pause = FIRST_PAUSE
    for thing in objects:
        namespace, name = thing["metadata"]["namespace"], thing["metadata"]["name"]
        while store.get(namespace, name) is None:
            try:
                if await writes.create(ELASTIC_QUOTAS, namespace, thing):
                    _log.info("created the quota %s/%s", namespace, name)
                pause = FIRST_PAUSE
                break
            except WriteFailed as error:
                _log.warning("cannot create the quota %s/%s, retrying: %s", namespace, name, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _quota(namespace: str, name: str, spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": namespace, "name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": ELASTIC_QUOTAS.api_version, "kind": ELASTIC_QUOTAS.name, "metadata": metadata, "spec": spec}
