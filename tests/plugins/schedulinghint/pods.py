"""Pods with hints, and a profile that reads them."""

import json

from tests.embedded import DEFAULT_CONFIG
from tests.plugins.objects import container, pod

INTERNAL = "internal.scheduling.koordinator.sh/scheduling-hint"
DEPRECATED = "scheduling.koordinator.sh/scheduling-hint"

PROFILE = {"plugins": {"preFilter": {"enabled": [{"name": "SchedulingHint"}]}}}
CONFIG = {**DEFAULT_CONFIG, "profiles": [PROFILE]}


def profile(most):
    """The profile with `maxHintNodes`."""
    return {**PROFILE, "pluginConfig": [{"name": "SchedulingHint", "args": {"maxHintNodes": most}}]}


def preferring(*names):
    return {"preferredNodeNames": list(names)}


def hinted(name, hint, *containers, annotation=INTERNAL, **more):
    """A pod with a hint: JSON, or the text of the annotation."""
    made = pod(name, *(containers or (container(cpu="1"),)), **more)
    text = hint if isinstance(hint, str) else json.dumps(hint)
    made["metadata"]["annotations"] = {annotation: text}
    return made
