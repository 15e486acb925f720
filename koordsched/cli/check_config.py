"""`koordsched check-config FILE`: is the file accepted, and which profiles result?"""

import importlib
import sys
import textwrap
from collections.abc import Callable, Collection
from typing import Any

import click
import orjson
import yaml

from koordsched.cli.objectfiles import InputError
from koordsched.config import (
    ConfigError,
    Configuration,
    ExtensionPoint,
    FeatureGates,
    PluginCatalog,
    PluginSets,
    Profile,
    Resolved,
    configz,
    load,
    resolve,
    unimplemented,
    warnings,
)
from koordsched.config.loading import read_file
from koordsched.config.secrets import without_secrets

_WEIGHTED = (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)
_POINTS = tuple(ExtensionPoint[name.upper()] for name in PluginSets.__struct_fields__)
_VERBS = ("filter", "preempt", "prioritize", "bind")


def build_check_config(
    plugins: Callable[[], tuple[PluginCatalog, Collection[str]]],
    attempt: Callable[[Resolved], None] | None = None,
) -> click.Command:
    """The command. `plugins` says which there are, and which of them have code behind them.

    `attempt` makes what the scheduler makes of its configuration; it raises ConfigError if that cannot be done.
    """

    def run(file: str, output: str, feature_gates: tuple[str, ...], *, strict: bool) -> None:
        catalog, built = plugins()
        try:
            gates = FeatureGates.parse(feature_gates)
            source = sys.stdin.buffer.read() if file == "-" else read_file(file)
            resolved = resolve(load(source, catalog=catalog, gates=gates), catalog=catalog, gates=gates)
            if attempt is not None:
                attempt(resolved)
        except ConfigError as error:
            if output in ("json", "yaml"):
                _print({"valid": False, "error": str(error), "errors": list(error.errors)}, output)
            click.echo(f"error: {error}", err=True)
            raise click.exceptions.Exit(1) from error
        notes = warnings(resolved, catalog, built)
        missing = unimplemented(resolved, built)
        if output not in ("json", "yaml"):
            _print_table(resolved, notes, missing)
        else:
            _print({**_report(resolved, notes), "unimplemented": sorted(missing)}, output)
        if strict and notes:
            raise click.exceptions.Exit(1)

    return click.Command(
        "check-config",
        callback=run,
        help="Check a configuration FILE (- = standard input) and show the resulting profiles.",
        params=[
            click.Argument(["file"], type=click.Path(allow_dash=True)),
            click.Option(
                ["-o", "--output"],
                type=click.Choice(["table", "wide", "json", "yaml"]),
                default="table",
                show_default=True,
                help="Output format; wide is the same as table here.",
            ),
            click.Option(["--feature-gates"], multiple=True, help="Name=true,Other=false, as given to `run`."),
            click.Option(["--strict"], is_flag=True, help="Exit with 1 if there is any warning."),
        ],
    )


def _plugins() -> tuple[PluginCatalog, Collection[str]]:
    """The plugins of `run`; loaded when a file is checked, not for --help."""
    plugins = importlib.import_module("koordsched.plugins")
    return plugins.CATALOG, plugins.IN_TREE.keys()


def _attempt(resolved: Resolved) -> None:
    """Builds the profiles as `run` does."""
    offline = importlib.import_module("koordsched.cli.offline")
    try:
        offline.empty_scheduler(resolved)
    except InputError as error:
        raise ConfigError(str(error)) from error


check_config = build_check_config(_plugins, _attempt)


def _report(resolved: Resolved, notes: list[str]) -> dict[str, Any]:
    """The answer for programs: the defaulted file, and per profile the lists and arguments."""
    document = configz(resolved.source)
    return {
        "valid": True,
        "configuration": document,
        "profiles": [
            {
                "schedulerName": profile.scheduler_name,
                "plugins": {point.value: _listed(profile, point) for point in _POINTS},
                "args": {config["name"]: config.get("args") for config in wire.get("pluginConfig", [])},
            }
            for profile, wire in zip(resolved.profiles, document["profiles"], strict=True)
        ],
        "warnings": notes,
    }


def _listed(profile: Profile, point: ExtensionPoint) -> list[Any]:
    if point in _WEIGHTED:
        return [{"name": name, "weight": weight} for name, weight in getattr(profile.plugins, point.attribute)]
    return list(profile.plugins.at(point))


def _print(report: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(yaml.safe_dump(report, sort_keys=False, allow_unicode=True), nl=False)


def _print_table(resolved: Resolved, notes: list[str], missing: Collection[str]) -> None:
    for label, text in _settings(resolved.source, resolved):
        _row(label, text)
    for profile in resolved.profiles:
        click.echo(f"\nprofile {profile.scheduler_name}")
        for point in _POINTS:
            if names := _names(profile, point, missing):
                _row(f"  {point.value}", names)
    for note in notes:
        click.echo(f"\nwarning: {note}" if note is notes[0] else f"warning: {note}", err=True)


def _settings(source: Configuration, resolved: Resolved) -> list[tuple[str, str]]:
    election, limit = resolved.leader_election, resolved.rate_limit
    lease = f"{election.resource_namespace}/{election.resource_name}"
    times = f"lease {election.lease_duration}, renew {election.renew_deadline}, retry {election.retry_period}"
    rows = [
        ("leader election", f"{lease} ({times})" if election.leader_elect else "off"),
        ("API rate limit", f"{limit.qps:g}/s, burst {limit.burst}" if limit else "none (adaptive)"),
        ("back-off", f"{source.pod_initial_backoff_seconds}s to {source.pod_max_backoff_seconds}s"),
        ("nodes considered", f"all (percentageOfNodesToScore: {source.percentage_of_nodes_to_score} has no effect)"),
        ("parallelism", f"{source.parallelism} (no effect)"),
    ]
    for extender in resolved.extenders:
        used = [verb for verb in _VERBS if getattr(extender, f"{verb}_verb")]
        rows.append(("extender", f"{without_secrets(extender.url_prefix)} ({', '.join(used) or 'no verbs'})"))
    return rows


def _names(profile: Profile, point: ExtensionPoint, missing: Collection[str]) -> str:
    if point in _WEIGHTED:
        weighted = getattr(profile.plugins, point.attribute)
        return ", ".join(f"{_marked(name, missing)} {weight}" for name, weight in weighted)
    return ", ".join(_marked(name, missing) for name in profile.plugins.at(point))


def _marked(name: str, missing: Collection[str]) -> str:
    return f"{name} (not implemented)" if name in missing else name


def _row(label: str, text: str) -> None:
    width = 20
    lines = textwrap.wrap(text, 100 - width, break_long_words=False, break_on_hyphens=False) or [""]
    for i, line in enumerate(lines):
        click.echo(f"{label if i == 0 else '':<{width}}{line}")
