"""Debugging pages: configuration, status, flags, stacks, and the verbosity of the log (core spec 2.4)."""

from __future__ import annotations

import asyncio
import platform
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from koordsched.observability.endpoint import ANY_METHOD, Endpoint, text_response
from koordsched.observability.logging import LogOptionError, parse_verbosity

_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)
_SECRET_FLAGS = ("token", "password", "secret")
_TASK_FRAMES = 8
_TASK_GROUPS = 200


def configz(config: Callable[[], Mapping[str, Any]]) -> Endpoint:
    """The configuration in force, as JSON: the defaulted file with kind and apiVersion, plugin sets not expanded."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps({"componentconfig": config()}), content_type="application/json")

    return Endpoint("/configz", handle)


def statusz(component: str, version: str, emulation: str, started: float, wall: Callable[[], float]) -> Endpoint:
    """The running version and its start. `started` and `wall` are seconds since the epoch."""

    async def handle(request: web.Request) -> web.Response:
        up = max(int(wall() - started), 0)
        since = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(started))
        return text_response(
            f"\n{component} statusz\n{_WARNING}\n\n"
            f"Started: {since}\n"
            f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec\n"
            f"Python version: {platform.python_version()}\n"
            f"Binary version: {version}\n"
            f"Emulation version: {emulation}\n"
        )

    return Endpoint("/statusz", handle)


def flagz(component: str, flags: Mapping[str, str]) -> Endpoint:
    """The command line flags in force, sorted; values that could be secrets are not shown."""
    lines = "".join(
        f"{name}={'CLASSIFIED' if value and name.endswith(_SECRET_FLAGS) else value}\n"
        for name, value in sorted(flags.items())
    )
    text = f"\n{component} flags\n{_WARNING}\n\n{lines}"

    async def handle(request: web.Request) -> web.Response:
        return text_response(text)

    return Endpoint("/flagz", handle)


def debug_pages(set_verbosity: Callable[[int], None]) -> list[Endpoint]:
    """For enableProfiling: /debug/stacks, and /debug/flags/v, where a PUT of a number changes -v."""

    async def handle(request: web.Request) -> web.Response:
        if request.method != "PUT":
            return text_response("unsupported http method\n", 406)
        value = (await request.content.read(64)).decode("utf-8", "replace").strip()
        try:
            number = parse_verbosity(value)
        except LogOptionError as error:
            return text_response(f"failed set klog.logging.verbosity: {error}\n", 400)
        set_verbosity(number)
        return text_response(f"successfully set klog.logging.verbosity to {number}\n")

    return [Endpoint("/debug/stacks", _stacks), Endpoint("/debug/flags/v", handle, ANY_METHOD)]


async def _stacks(request: web.Request) -> web.Response:
    """Where every thread is, and where every task of the loop waits, equal ones counted."""
    return text_response(f"{_thread_stacks()}\n{_task_stacks()}")


def _thread_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"thread {names.get(ident, '?')} ({ident})\n{''.join(traceback.format_stack(frame))}\n"
        for ident, frame in sys._current_frames().items()
    )


def _task_stacks() -> str:
    tasks = asyncio.all_tasks()
    groups: Counter[str] = Counter()
    for task in tasks:
        frames = task.get_stack(limit=_TASK_FRAMES)
        where = "".join(f"  {f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_qualname}\n" for f in frames)
        coroutine = task.get_coro()
        groups[f"{getattr(coroutine, '__qualname__', coroutine)}\n{where}"] += 1
    listed = "".join(f"{count} x {text}\n" for text, count in groups.most_common(_TASK_GROUPS))
    return f"{len(tasks)} tasks\n\n{listed}"
