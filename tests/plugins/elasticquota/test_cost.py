"""What quotas cost: ratios measured in one run, and how little is worked out anew."""

import gc
import json
import time
from random import Random

import pytest

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.framework.interface import CycleState
from koordsched.framework.scoring import decide
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.elasticquota.arithmetic import tree as tree_module
from koordsched.plugins.elasticquota.arithmetic.trees import QuotaTrees
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World, configuration
from tests.plugins.harness import StoppedClock

NODES = 2000
BATCHES, BATCH = 8, 150


def quota_tree(fanout=4, levels=5):
    """(quotas, names of the leaves): every quota has `fanout` children."""
    made, level = [], [""]
    for depth in range(levels):
        marks = {} if depth == levels - 1 else {"is_parent": "true"}
        names = [f"{parent}-{i}" if parent else f"q{i}" for parent in level for i in range(fanout)]
        for name in names:
            parent = name.rpartition("-")[0]
            made.append(
                quota(name, {"cpu": 10**6, "memory": "1000Ti"}, {"cpu": 1, "memory": "1Gi"}, parent=parent, **marks)
            )
        level = names
    return made, level


class Engine:
    """A cluster, and the scheduling cycle on it."""

    def __init__(self, configured, objects):
        resolved = config.resolve(config.load(json.dumps(configured), catalog=CATALOG), catalog=CATALOG)
        self.rng = Random(1)
        self.offline = OfflineScheduler(resolved, IN_TREE, objects, clock=StoppedClock(), rng=self.rng)
        self.profile = self.offline.profiles["default-scheduler"]
        for i in range(NODES):
            self.offline.add(node(f"n{i}", cpu=64, memory="256Gi"))

    def waiting(self, leaves, tag):
        """Pods that the scheduler is about to hear of, some replicas to a quota."""
        cluster = self.offline.cluster
        return [
            cluster.pods.build(
                convert(pod(f"{tag}-{i}", {"cpu": "10m", "memory": "10Mi"}, leaves[i // 10 % len(leaves)]), core.Pod)
            )
            for i in range(BATCH)
        ]

    def schedule(self, pods):
        """CPU seconds per pod from hearing of it to its node: filter, score, assume, reserve."""
        profile, cluster = self.profile, self.offline.cluster
        gc.disable()
        started = time.thread_time()
        for one in pods:
            cluster.pod_seen(one)
        for one in pods:
            cycle = CycleState(one)
            verdicts = profile.filtering.filter(cycle)
            assert verdicts.feasible
            row = decide(cycle, cluster.table, verdicts, self.rng).row
            cluster.assume(one, row)
            profile.run_reserve(cycle, one, row)
        spent = time.thread_time() - started
        gc.enable()
        return spent / len(pods)


@pytest.mark.slow
def test_quota_checks_cost_a_fraction_of_a_cycle():
    quotas, leaves = quota_tree()
    without = {key: value for key, value in configuration().items() if key != "profiles"}
    demand = [pod(f"d{i}", {"cpu": 1000 + i, "memory": "1Ti"}, name) for i, name in enumerate(leaves)]
    engines = {
        "without": Engine(without, []),
        "fitting": Engine(configuration(), quotas),
        "contended": Engine(configuration(), [*quotas, *demand]),
    }
    spent = {name: [] for name in engines}
    for batch in range(BATCHES):
        for name, engine in engines.items():
            spent[name].append(engine.schedule(engine.waiting(leaves, f"b{batch}")))
    best = {name: min(times) for name, times in spent.items()}
    # The aims are 1.2 and 2.5; measured by bench.engine.quota it is 1.16 to 1.2, and 1.5 to 1.6.
    assert best["fitting"] < 1.3 * best["without"]
    assert best["contended"] < 2.5 * best["without"]


@pytest.fixture
def redistributed(monkeypatch):
    """How many times siblings were looked at together."""
    calls = []
    original = tree_module.redistribute

    def counting(available, stakes):
        calls.append(len(stakes))
        return original(available, stakes)

    monkeypatch.setattr(tree_module, "redistribute", counting)
    return calls


def test_only_what_a_change_concerns_is_worked_out_anew(redistributed):
    quotas, leaves = quota_tree(fanout=3, levels=3)
    world = World(node("n", cpu=100, memory="100Gi"), *quotas)
    for i, name in enumerate(leaves):
        world.put(pod(f"p{i}", {"cpu": 1}, name))
    assert [world.quota(name).limit["cpu"] for name in leaves] == [10**9] * 27
    assert redistributed == [], "everybody has what it asks for"

    for i, name in enumerate(leaves):
        world.put(pod(f"more{i}", {"cpu": 20 + i}, name))
    limits = {name: dict(world.quota(name).limit) for name in leaves}
    everything = len(redistributed)
    assert everything > 0

    world.put(pod("yet-more", {"cpu": 50}, leaves[0]))
    assert {name: dict(world.quota(name).limit) for name in leaves} == limits
    assert len(redistributed) == everything, "who gets less than it wants may want more: nothing changes"

    world.put(pod("modest", {"memory": "1Gi"}, leaves[5]))
    assert world.quota(leaves[5]).limit["memory"] == 2**30 * 10**9
    few = len(redistributed) - everything
    assert 0 < few < everything, "one branch is worked out anew"


def test_a_change_of_a_satisfied_quota_concerns_its_siblings(redistributed):
    world = World(node("n", cpu=10), quota("a", {"cpu": 100}), quota("b", {"cpu": 100}))
    world.put(pod("pa", {"cpu": 2}, "a"))
    world.put(pod("pb", {"cpu": 50}, "b"))
    assert world.runtime("a", "b") == ["2", "8"]
    world.put(pod("pa2", {"cpu": 1}, "a"))
    assert world.runtime("a", "b") == ["3", "7"]


def test_pods_are_counted_together_when_somebody_looks(monkeypatch):
    """As long as all is granted, a pod is a number in a tally: the quotas above it are not touched."""
    quotas, leaves = quota_tree(fanout=3, levels=4)
    world = World(node("n", cpu=100, memory="100Gi"), *quotas)
    tree = world.quota(leaves[0]).tree
    assert world.quota("q0").request == {}
    entered = []
    enter = tree.enter
    monkeypatch.setattr(tree, "enter", lambda tally: (entered.append(tally), enter(tally)))
    row = world.cluster.table.row_of["n"]
    for number in range(40):
        thing = pod(f"p{number}", {"cpu": 1}, leaves[number % 2])
        own = world.put(thing)
        assert world.refusal(thing) is None
        world.cluster.assume(own, row)
    assert entered == []
    assert (world.shown("q0", "used"), world.shown(leaves[1], "request")) == ({"cpu": "40"}, {"cpu": "20"})
    assert len(entered) == 2, "one step up for each of the quotas"

    # No more than there is is granted this way.
    for number in range(40, 100):
        thing = pod(f"p{number}", {"cpu": 1}, leaves[number % 2])
        world.put(thing)
        assert world.refusal(thing) is None
    much = pod("much", {"cpu": 60}, leaves[5])
    world.put(much)
    assert world.refusal(much) is not None


@pytest.mark.parametrize("last_first", [False, True])
def test_a_chain_of_a_thousand_quotas_costs_what_is_in_it(last_first, monkeypatch):
    """Deeper than Python's stack. A new quota does not have all above and below it placed anew."""
    asked = []
    is_on_cycle = QuotaTrees._is_on_cycle
    monkeypatch.setattr(QuotaTrees, "_is_on_cycle", lambda self, name: asked.append(name) or is_on_cycle(self, name))
    for depth in (150, 1100):  # the first to fail soon where it fails
        asked.clear()
        chain = [quota(f"q{i}", {"cpu": 10}, parent=f"q{i - 1}" if i else "", is_parent="true") for i in range(depth)]
        world = World(node("n", cpu=100))
        for thing in reversed(chain) if last_first else chain:
            world.put(thing)
        assert len(asked) <= 3 * depth
    for name, fits in (("first", True), ("second", False)):
        new = pod(name, {"cpu": 6}, f"q{depth - 1}")
        world.put(new)
        assert (world.refusal(new) is None) is fits
        world.put(pod(name, {"cpu": 6}, f"q{depth - 1}", on="n"))
    assert world.books.validation_errors() == {}
    assert len(world.quota(f"q{depth - 1}").lineage) == depth + 1


def test_room_in_one_tree_is_not_believed_in_another():
    """Room is remembered by the number of changes that its tree has seen; another may have seen as many."""
    world = World(node("n", cpu=3), gates=("MultiQuotaTree",))
    marks = {"is_root": "true", "tree_id": "t", "ignore_default_tree": "true", "total_resource": {"cpu": "90"}}
    world.put(quota("root", {"cpu": 90}, **marks))
    world.put(quota("q", {"cpu": 50}, tree_id="t"))
    admission, other = world.plugin.admission, world.quota("q").tree
    assert admission.admits_at_once(world.put(pod("first", {"cpu": 1}, "q")))
    as_many = other.epoch
    world.put(quota("q", {"cpu": 50}))
    world.quota("q").tree.epoch = as_many
    assert not admission.admits_at_once(world.put(pod("much", {"cpu": 40}, "q")))


def test_tallies_do_not_pile_up_where_they_are_not_read(monkeypatch):
    monkeypatch.setattr(tree_module, "MOST_UNSETTLED", 5)
    world = World(node("n", cpu=100), quota("q", {"cpu": 100}))
    tree = world.quota("q").tree
    for number in range(40):
        thing = pod(f"p{number}", {"cpu": f"{number + 1}m"}, "q")
        world.put(thing)
        world.remove(thing)
        assert len(tree.unsettled) <= 6
    assert world.quota("q").request == {}
