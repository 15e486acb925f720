"""Building configuration files for tests."""

from typing import Any

import yaml

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def document(**fields: Any) -> str:
    """A configuration file with these top-level fields."""
    return HEAD + (yaml.safe_dump(fields, sort_keys=False) if fields else "")


def profile(**fields: Any) -> str:
    """A configuration file with one profile, `default-scheduler`."""
    return document(profiles=[{"schedulerName": "default-scheduler", **fields}])


def args(plugin: str, **fields: Any) -> str:
    """A configuration file with arguments of one plugin."""
    return profile(pluginConfig=[{"name": plugin, "args": fields}])
