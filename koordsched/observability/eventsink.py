"""Events through the write lanes, with the lowest priority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from koordsched.client.errors import ApiError
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.transport import JSON, MERGE_PATCH, Request, Response

OnResult = Callable[[int], None]
"""Receives the HTTP status of the answer, 0 if there was none."""


class LaneEventSink:
    """Writes events of one API. Neither method blocks or raises; both call `on_result` exactly once, now or later.

    `api` is `/apis/events.k8s.io/v1`, or `/api/v1` for the events about the Lease."""

    def __init__(self, lanes: Lanes, api: str = "/apis/events.k8s.io/v1") -> None:
        self._lanes = lanes
        self._api = api

    def create(self, namespace: str, body: bytes, on_result: OnResult) -> None:
        """POSTs an Event."""
        self._submit(Request("POST", f"{self._api}/namespaces/{namespace}/events", body, JSON), on_result)

    def patch(self, namespace: str, name: str, body: bytes, on_result: OnResult) -> None:
        """Merge-patches an Event."""
        self._submit(
            Request("PATCH", f"{self._api}/namespaces/{namespace}/events/{name}", body, MERGE_PATCH), on_result
        )

    def _submit(self, request: Request, on_result: OnResult) -> None:
        self._lanes.submit(Lane.EVENT, request).add_done_callback(lambda answer: on_result(_status_of(answer)))


def _status_of(answer: asyncio.Future[Response]) -> int:
    if answer.cancelled():
        return 0
    error = answer.exception()
    if error is None:
        return answer.result().status
    return error.status if isinstance(error, ApiError) else 0
