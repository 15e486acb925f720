"""The yardstick for start-up: lists nodes and pods in pages and decodes them, and does nothing with them.

Pages, selectors and types are those of the scheduler's own reflectors. Prints one JSON line.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec
import uvloop

from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.client.clock import SystemClock
from koordsched.client.errors import raise_for_status
from koordsched.client.jsonformat import decode_page
from koordsched.client.network import NetworkTransport
from koordsched.client.reflector import LIST_TIMEOUT, PAGE_SIZE
from koordsched.scheduling.watching import UNFINISHED

_KINDS: tuple[tuple[str, type[Any], dict[str, str]], ...] = (
    ("/api/v1/nodes", core.Node, {}),
    ("/api/v1/pods", core.Pod, UNFINISHED),
)


class Listing(msgspec.Struct):
    """What was listed, and how long listing and decoding took: on the wall, and in CPU time of the lister."""

    objects: int
    mebibytes: float
    seconds: float
    cpu_seconds: float


async def listing(kubeconfig: str) -> Listing:
    """Lists everything once. Raises ClientError."""
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=kubeconfig)
    objects = size = 0
    started, cpu = time.perf_counter(), time.process_time()
    try:
        for path, kind, selectors in _KINDS:
            decode = Decoder(kind)
            query = {**selectors, "limit": str(PAGE_SIZE)}
            while True:
                response = await transport.request("GET", path, query=query, timeout=LIST_TIMEOUT)
                page = decode_page(raise_for_status(response).body)
                size += len(response.body)
                for raw in page.items:
                    decode(raw)
                    objects += 1
                if not page.next_token:
                    break
                query["continue"] = page.next_token
        return Listing(objects, round(size / (1 << 20), 1), time.perf_counter() - started, time.process_time() - cpu)
    finally:
        await transport.close()


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(listing(sys.argv[1]))).decode())
