"""An empty cluster, ready to be served."""

from __future__ import annotations

import random

from koordsched.fakecluster.clock import CallLater, Clock, loop_call_later
from koordsched.fakecluster.kinds import bootstrap, install
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.store import Store


def new_cluster(
    clock: Clock | None = None,
    rng: random.Random | None = None,
    call_later: CallLater = loop_call_later,
    store: Store | None = None,
) -> Registry:
    """A registry with the rules of every built-in kind and the objects that every cluster has.

    Without arguments it runs on the machine's clock and an unseeded generator.
    """
    registry = Registry(clock, rng, call_later, store)
    install(registry)
    bootstrap(registry)
    return registry
