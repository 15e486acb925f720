"""Whatever comes and goes, cached scores are those of a look at everything, and pods are counted once."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from koordsched.framework.evaluation import Evaluations
from koordsched.plugins.gpufragmentation.plugin import GPUFragmentation
from tests.depth import quick_first
from tests.plugins.deviceshare.machines import gpu
from tests.plugins.gpufragmentation.test_plugin import machine, profile, values_of, wants
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, pod

STEPS = 60


class History:
    """A cluster that changes at random."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.nodes = [f"n{i}" for i in range(4)]
        self.offline = scheduler([thing for name in self.nodes for thing in self.machine(name)], profile())
        self.count = 0
        self.running = []
        self.asked = [
            self.offline.add(thing)
            for thing in (wants("a", 47), wants("b", 100), wants("c", 200), pod("d", container(cpu="2", memory="1Gi")))
        ]

    def machine(self, name):
        """Two to four GPUs, one in five of them broken, of one of two models."""
        gpus = [gpu(minor, health=self.rng.random() < 0.8) for minor in range(self.rng.randint(2, 4))]
        return machine(name, *gpus, cpu=str(self.rng.choice((8, 32))), model=self.rng.choice("xy"))

    def step(self):
        happen = self.rng.choice([self.place] * 5 + [self.end] * 3 + [self.change, self.offline.timers.run])
        happen()

    def place(self):
        self.count += 1
        share = self.rng.choice((19, 47, 81, 100, 200))
        only = {"nodeSelector": {"node.koordinator.sh/gpu-model": "x"}} if self.rng.random() < 0.3 else {}
        waiting = self.offline.add(wants(f"p{self.count}", share, self.rng.choice(("1", "3")), **only))
        if self.offline.schedule(waiting.key).node:
            self.running.append(waiting)

    def end(self):
        if self.running:
            uid = self.running.pop(self.rng.randrange(len(self.running))).uid
            self.offline.cluster.remove_pod(uid)
            self.offline.cluster.pod_gone(uid)

    def change(self):
        for thing in self.machine(self.rng.choice(self.nodes)):
            self.offline.add(thing)


@pytest.mark.parametrize("seed", quick_first(range(30), 6))
def test_cached_scores_are_those_of_a_look_at_everything(seed):
    history = History(seed)
    chosen = history.offline.profiles["default-scheduler"]
    table = history.offline.cluster.table
    plugin = chosen.plugins[GPUFragmentation.name]
    for _ in range(STEPS):
        history.step()
        for asked in history.asked:
            kept = chosen.evaluations.of(asked.shape)
            again = Evaluations(chosen.chains, table, chosen.handle.reasons).of(asked.shape)
            assert (kept.codes == again.codes).all()
            assert (kept.totals == again.totals).all()
            one_by_one = [plugin.score_rows(asked.shape, table, slice(row, row + 1))[0] for row in range(table.size)]
            assert (plugin.score_rows(asked.shape, table, np.arange(table.size)) == one_by_one).all()
    assert values_of(history.offline).seen.pods == Counter(running.shape for running in history.running)
    assert values_of(history.offline).number > 1
