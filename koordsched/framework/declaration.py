"""What a plugin declares of itself: all that configuration, scheduler, endpoints and commands have to know of it.

A plugin that is one folder has its `Declaration` in the folder's `__init__`; `koordsched.plugins.BUILT_IN` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from koordsched.config.catalog import PluginEntry
from koordsched.framework.controller import ControllerFactory
from koordsched.framework.display import Line, Table
from koordsched.framework.interface import Plugin
from koordsched.framework.profile import PluginFactory, Profile
from koordsched.observability.metric_registry import MetricRegistry

API_VERSION = 1
"""The version of what plugins of other distributions may use: `Declaration`, `framework.interface`, `framework.handle`,
and what these give access to. Raised with every change that such a plugin could have to follow; the changelog describes
it."""

T = TypeVar("T")


class NotFound(LookupError):
    """A page has no answer for these parameters; the message is for the user."""


def finished(steps: Generator[None, None, T]) -> T:
    """What the generator of a page returns, all steps taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


@dataclass(frozen=True, slots=True)
class Page:
    """A path at which the scheduler's HTTP server shows something of the plugin, as JSON.

    `path` may have parameters, `{name}`. `answer(plugin, parameters)` gets those of the path and the query. It returns
    what is to be shown; or a generator that returns it, which runs step by step while the scheduler goes on. It may
    raise NotFound.
    """

    path: str
    answer: Callable[[Any, Mapping[str, str]], Any]


def report_pages(
    path: str,
    overview: Callable[[Any], Any],
    report: Callable[[Any, str], Any],
) -> tuple[Page, Page]:
    """The page of all things, and at `path/{name}` the page of one. `overview(plugin)`, `report(plugin, name)`: what
    is to be shown, as for a page.
    """
    return (
        Page(path, lambda plugin, parameters: overview(plugin)),
        Page(f"{path}/{{name}}", lambda plugin, parameters: report(plugin, parameters["name"])),
    )


@dataclass(frozen=True, slots=True)
class Detail:
    """What a view shows of one thing, which an argument of its command names.

    `argument`: what the help calls it. `page`: as for a view, with `{name}` where the name goes. `report(plugin, name)`
    may raise NotFound, as the page does.
    """

    argument: str
    title: str
    page: str
    type: type[Any]
    report: Callable[[Any, str], Any]
    show: Callable[[Any], Iterable[Line | Table]]


@dataclass(frozen=True, slots=True)
class View:
    """A command, `koordsched <group> <name>`, that shows a report: of a running scheduler, or on objects in files.

    `page`: where a running scheduler has the report, as JSON of `type`. `report(plugin)` makes it; `show` says how it
    looks. `title` completes "the answer is not ...". `detail`: what is shown instead if the command gets an argument.
    Without `name` the command is `koordsched <group>` itself, and the group has no others; several plugins may
    contribute to it, each with fields of other names. `is_empty(report)`: whether it is left out beside others.
    `brief(report)` leaves out what a table shows with `--all` only.
    """

    group: str
    group_help: str
    name: str
    help: str
    title: str
    page: str
    type: type[Any]
    report: Callable[[Any], Any]
    show: Callable[[Any], Iterable[Line | Table]]
    detail: Detail | None = None
    brief: Callable[[Any], Any] | None = None
    is_empty: Callable[[Any], bool] = lambda report: False


@dataclass(frozen=True, slots=True)
class Declaration:
    """A plugin. `entry`: its extension points and arguments.

    `controller` builds what runs for it beside scheduling. `observe(plugin, metrics)` adds metrics, if its controller
    does not. `show_refusal` shows what its `explain_refusal` returned, given as JSON values; it raises
    msgspec.ValidationError for values of another version. `api_version`: the API_VERSION for which a plugin of
    another distribution is written (`plugins.outoftree`); built-in ones need not say it.
    """

    name: str
    factory: PluginFactory
    entry: PluginEntry
    controller: ControllerFactory | None = None
    observe: Callable[[Any, MetricRegistry], None] | None = None
    pages: tuple[Page, ...] = ()
    views: tuple[View, ...] = ()
    show_refusal: Callable[[Any], Iterable[Line | Table]] | None = None
    api_version: int | None = None

    def plugin_in(self, profiles: Mapping[str, Profile]) -> Plugin | None:
        """The plugin as the first profile runs it that enables it."""
        found = (profile.plugins.get(self.name) for profile in profiles.values())
        return next((plugin for plugin in found if plugin is not None), None)
