"""The controllers of the plugins that are enabled, and their running (package `controllers`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from koordsched.config.resolving import Resolved
from koordsched.framework.controller import Controller, ControllerFactory, ControllerHandle
from koordsched.framework.profile import Profile

_log = logging.getLogger(__name__)

AGAIN = 5.0
"""Seconds after which a controller that failed is started again: it must not take scheduling with it."""


def build_controllers(
    resolved: Resolved,
    profiles: Mapping[str, Profile],
    factories: Mapping[str, ControllerFactory],
    handle: ControllerHandle,
) -> dict[str, Controller]:
    """One controller per plugin, with the arguments of the first profile that enables it."""
    controllers: dict[str, Controller] = {}
    taken: dict[str, object] = {}
    for config in resolved.profiles:
        plugins = profiles[config.scheduler_name].plugins
        for name in [name for name in factories if name in plugins]:
            args = config.args.get(name)
            if name not in controllers:
                controllers[name] = factories[name](plugins[name], args, handle)
                taken[name] = args
            elif args != taken[name]:
                _log.warning(
                    "profile %s: the controller of %s uses the arguments of the first profile that enables it",
                    config.scheduler_name,
                    name,
                )
    return controllers


@asynccontextmanager
async def running(controllers: Mapping[str, Controller]) -> AsyncIterator[None]:
    """Inside, the controllers work."""
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(_keep_running(name, controller), name=f"controller of {name}")
        for name, controller in controllers.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_running(name: str, controller: Controller) -> None:
    while True:
        try:
            await controller.run()
        except Exception:
            _log.exception("the controller of %s failed, restarting it in %d seconds", name, AGAIN)
        await asyncio.sleep(AGAIN)
