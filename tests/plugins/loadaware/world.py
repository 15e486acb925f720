"""A cluster with reports about its nodes, to which objects come, change and go as watches would have it."""

import json
from functools import lru_cache
from random import Random
from typing import NamedTuple

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.plugins.loadaware.columns import PLAIN, PROD
from koordsched.scheduling.offline import OfflineScheduler

NAME = "LoadAwareScheduling"
NOW = 1_900_000_000.0
BOUND = 1 << 58
"""Amounts beyond are no amounts."""


class Reading(NamedTuple):
    """What decides about a node for a class of pods."""

    gate: int
    aggregated: bool
    total: list[int]
    room: list[int | None]
    left: list[int | None]


def profile(args=None, **points):
    """A profile with the plugin; `points`: further plugin sets."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{NAME}Args"}
    enabled = {"enabled": [{"name": NAME, "weight": 1}]}
    return {
        "schedulerName": "default-scheduler",
        "plugins": {"filter": enabled, "score": enabled, "reserve": {"enabled": [{"name": NAME}]}, **points},
        "pluginConfig": [{"name": NAME, "args": {**kind, **(args or {})}}],
    }


def configuration(args=None, **points):
    """A configuration of that profile; `args` are those of the plugin."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile(args, **points)],
    }


def resolved(document):
    """The configuration as the scheduler reads it."""
    return _resolved(json.dumps(document))


@lru_cache(maxsize=16)
def _resolved(text):
    return config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)


class Clock:
    """Time passes when a test says so."""

    def __init__(self):
        self.now = NOW

    def wall(self):
        return self.now

    def monotonic(self):
        return self.now - NOW + 1000.0


class World:
    """The scheduler's state, as watches leave it."""

    def __init__(self, *objects, args=None, clock=None, **points):
        self.clock = clock or Clock()
        document = configuration(args, **points)
        self.offline = OfflineScheduler(resolved(document), IN_TREE, (), clock=self.clock, rng=Random(1))
        self.cluster, self.table = self.offline.cluster, self.offline.cluster.table
        self.profile = self.offline.profiles["default-scheduler"]
        self.plugin = self.profile.plugins[NAME]
        self.loads, self.columns = self.plugin.loads, self.plugin.loads.columns
        self.announced = []
        self.cluster.on_event(lambda event, old, new: self.announced.append(new))
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed."""
        if thing["kind"] == "Pod" and thing["spec"].get("nodeName"):
            self.offline.pending.pop(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}", None)
        return self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata = thing["metadata"]
        if thing["kind"] == "Node":
            self.cluster.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            self.offline.pending.pop(f"{metadata['namespace']}/{metadata['name']}", None)
            self.cluster.pod_gone(metadata["uid"])
            self.cluster.remove_pod(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            self.cluster.objects.of(kind).delete(metadata.get("namespace", ""), metadata["name"])

    def pass_time(self, seconds):
        """Time passes, and timers are looked at."""
        self.clock.now += seconds
        self.offline.timers.run()

    def pod(self, thing):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(thing, core.Pod))

    def assume(self, thing, name="n"):
        """We place a pod; returns it."""
        made = self.pod(thing)
        self.cluster.assume(made, self.table.row_of[name])
        return made

    def estimate(self, thing):
        """What a pod is expected to use, by resource, nothing left out."""
        amounts = self.loads.estimator.of(self.pod(thing).shape).amounts
        return None if amounts is None else dict(zip(self.loads.resources, amounts, strict=True))

    def refusals(self, thing):
        """Node name -> reason, None where the pod passes; the same by all rows and by one row at a time."""
        return {name: self._text(code) for name, code in self._codes(thing).items()}

    def refusal(self, thing, name="n"):
        """What Filter says about a pod on a node."""
        return self.refusals(thing)[name]

    def _text(self, code):
        if code == 0:
            return None
        reason = self.profile.handle.reasons[code]
        assert (reason.plugin, reason.code.text) == (NAME, "Unschedulable")
        (text,) = reason.texts
        return text

    def _codes(self, thing):
        shape, found = self.pod(thing).shape, {}
        all_at_once = self.plugin.filter_rows(shape, self.table, self.table.all_rows)
        for name, row in self.table.row_of.items():
            one = self.plugin.filter_rows(shape, self.table, slice(row, row + 1))
            found[name] = 0 if one is None else int(one[0])
            assert found[name] == (0 if all_at_once is None else int(all_at_once[row]))
        return found

    def scores(self, thing):
        """Node name -> score; the same by all rows and by one row at a time."""
        shape, found = self.pod(thing).shape, {}
        all_at_once = self.plugin.score_rows(shape, self.table, self.table.all_rows)
        for name, row in self.table.row_of.items():
            one = self.plugin.score_rows(shape, self.table, slice(row, row + 1))
            found[name] = one if isinstance(one, int) else int(one[0])
            assert found[name] == (all_at_once if isinstance(all_at_once, int) else int(all_at_once[row]))
        return found

    def score(self, thing, name="n"):
        """The score of a node for a pod."""
        return self.scores(thing)[name]

    def readings(self):
        """All that decides about nodes, by name and class of pods.

        How much a pod may use at most (None: all), and what is left beyond the usage that is scored (None: unknown).
        """
        found, columns = {}, self.columns
        for name, row in self.table.row_of.items():
            for kind in (PLAIN, PROD):
                gate, total = int(columns.gate.data[row, kind]), columns.total.data[row].tolist()
                room = [amount if abs(amount) < BOUND else None for amount in columns.room(row, kind)]
                left = [amount if abs(amount) < BOUND else None for amount in columns.left(row, kind)]
                aggregated = bool(columns.aggregated.data[row, kind])
                found[name, kind] = Reading(gate, aggregated, total, room, left)
        return found

    def sums(self, name="n"):
        """The sums over the pods of a node: each by resource, without zero entries."""
        sums = self.loads.sums(self.loads.of_node(name))
        return {
            field: {r: n for r, n in zip(self.loads.resources, vector, strict=True) if n}
            for field, vector in sums._asdict().items()
        }

    def explain(self, thing):
        """What would be done with a pod that waits."""
        return self.offline.explain(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}")
