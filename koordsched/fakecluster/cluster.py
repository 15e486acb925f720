"""An empty cluster, ready to be served."""

from __future__ import annotations

import random
from collections.abc import Collection

from koordsched.fakecluster.admission.devices import PodWebhook
from koordsched.fakecluster.clock import CallLater, Clock, loop_call_later
from koordsched.fakecluster.kinds import bootstrap, install
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.store import Store


def new_cluster(
    clock: Clock | None = None,
    rng: random.Random | None = None,
    call_later: CallLater = loop_call_later,
    store: Store | None = None,
    webhooks: Collection[PodWebhook] = (),
) -> Registry:
    """A registry with the rules of every built-in kind and the objects that every cluster has.

    Without arguments it runs on the machine's clock and an unseeded generator.
    """
    registry = Registry(clock, rng, call_later, store)
    install(registry, webhooks)
    _provide_accounts(registry)
    bootstrap(registry)
    return registry


def _provide_accounts(registry: Registry) -> None:
    """Every namespace gets its `default` service account at once, as pods that name none run under it."""
    accounts = registry.resource("", "v1", "serviceaccounts")

    def provide(change: ChangeView) -> None:
        record = change.record
        if change.type == "ADDED" and not record.deleting and registry.peek(accounts, record.name, "default") is None:
            registry.create(accounts, record.name, {"metadata": {"name": "default"}})

    registry.subscribe_changes(registry.resource("", "v1", "namespaces"), provide)
