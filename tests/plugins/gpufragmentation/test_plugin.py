"""The plugin on whole clusters: which node and GPU a pod gets, and what the values follow."""

import json
from random import Random

import pytest

from koordsched.config.errors import ConfigError
from koordsched.engine.transaction import Transaction
from koordsched.plugins.gpufragmentation.books import ValueBooks
from koordsched.plugins.shared.devices.columns import DeviceColumns
from tests.plugins.deviceshare.machines import device, gpu
from tests.plugins.harness import resolved, scheduler
from tests.plugins.objects import container, node, node_affinity, pod, term
from tests.plugins.states import carry_over

NAME = "GPUFragmentation"
CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"
SHARED = "koordinator.sh/gpu.shared"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
MODEL = "node.koordinator.sh/gpu-model"
DEVICES = ("preFilter", "filter", "reserve", "preBind")


def profile(args=None, *, scores=True, **more):
    """DeviceShare places; nothing but GPUFragmentation scores."""
    points = {point: {"enabled": [{"name": "DeviceShare"}]} for point in DEVICES}
    enabled = [{"name": NAME}] if scores else []
    return {
        "plugins": {**points, "score": {"enabled": enabled, "disabled": [{"name": "*"}]}, **more},
        "pluginConfig": [{"name": NAME, "args": args}] if args else [],
    }


def machine(name, *gpus, cpu="64", model=""):
    """A node and its Device."""
    whole = str(100 * len(gpus))
    amounts = {CORE: whole, RATIO: whole, SHARED: whole, MEMORY: f"{80 * len(gpus)}Gi"}
    labels = {MODEL: model} if model else {}
    return [node(name, cpu, "512Gi", labels=labels, **amounts), device(*gpus, name=name)]


def gpus(count):
    return [gpu(minor) for minor in range(count)]


def wants(name, share, cpu="1", **more):
    """A pod that waits for that much of GPUs, in per cent."""
    return pod(name, container(cpu=cpu, memory="1Gi", **{CORE: share, RATIO: share}), **more)


def runs(name, on, minor, share, cpu="1"):
    """A pod that has a part of a GPU."""
    thing = wants(name, share, cpu, on=on)
    amounts = {CORE: str(share), RATIO: str(share), MEMORY: str((80 << 30) * share // 100)}
    thing["metadata"]["annotations"] = {ALLOCATED: json.dumps({"gpu": [{"minor": minor, "resources": amounts}]})}
    return thing


def place(offline, thing):
    """(node, minors) of a pod that came."""
    offline.timers.run()
    waiting = offline.add(thing)
    node_name = offline.schedule(waiting.key).node
    fact = offline.cluster.shared(DeviceColumns).allocation
    return node_name, [each.minor for each in fact.of(waiting) or ()]


def values_of(offline):
    return offline.cluster.shared(lambda state: pytest.fail("made by the plugin"), key=ValueBooks)


CLASSES = [runs("a", "used", 0, 81), runs("b", "used", 1, 47), runs("c", "used", 2, 47), runs("d", "used", 2, 47)]
"""Tasks of 81 % and 47 %: what a GPU is worth is in halves; one with 53 % free has room for one more of 47 %."""


def test_a_part_goes_to_the_node_and_gpu_where_least_is_lost():
    state = [*machine("empty", *gpus(4)), *machine("used", *gpus(4)), *CLASSES]
    assert place(scheduler(state, profile()), wants("p", 47)) == ("used", [1])
    # GPU 3 is the emptiest; by name, devices alone would take it.
    assert place(scheduler(state[2:], profile(scores=False)), wants("p", 47)) == ("used", [3])


def test_a_task_of_81_leaves_halves_to_others():
    state = [*machine("used", *gpus(4)), *CLASSES, runs("e", "used", 0, 19)]
    assert place(scheduler(state, profile()), wants("p", 81)) == ("used", [3])


def test_whole_gpus_are_taken_where_others_are_in_use():
    # Tasks of four GPUs, as many as fit.
    large = [
        {**runs(f"l{i}", f"large-{i}", 0, 100), "spec": wants("x", 400, on=f"large-{i}")["spec"]} for i in range(5)
    ]
    for i, each in enumerate(large):
        amounts = {CORE: "100", RATIO: "100", MEMORY: "80Gi"}
        given = {"gpu": [{"minor": minor, "resources": amounts} for minor in range(4)]}
        each["metadata"]["annotations"] = {ALLOCATED: json.dumps(given)}
        each["spec"]["nodeName"] = f"large-{i}"
    state = [thing for i in range(5) for thing in machine(f"large-{i}", *gpus(4))]
    state += [*machine("empty", *gpus(4)), *machine("used", *gpus(4)), *large, runs("a", "used", 0, 100)]
    assert place(scheduler(state, profile()), wants("p", 100))[0] == "used"


def test_values_follow_what_comes_and_goes():
    offline = scheduler([*machine("one", *gpus(4)), *machine("two", *gpus(4))], profile({"refreshAfter": 2}))
    books = values_of(offline)
    plugin = offline.profiles["default-scheduler"].plugins[NAME]
    assert books.values.gpu[0, 0, 50] == 0
    offline.add(runs("a", "one", 0, 50))
    before = plugin.epoch(None)
    offline.timers.run()
    assert books.values.gpu[0, 0, 50] == pytest.approx(0.5, abs=0.1)
    assert plugin.epoch(None) != before
    # Two are enough, one is not.
    for name, due in (("b", False), ("c", True)):
        before = plugin.epoch(None)
        offline.add(runs(name, "two", 0, 20))
        offline.timers.run()
        assert (plugin.epoch(None) != before) is due
    before = plugin.epoch(None)
    for uid in ("uid-default-a", "uid-default-b"):
        offline.cluster.remove_pod(uid)
    offline.timers.run()
    assert plugin.epoch(None) != before
    assert books.seen.pods.total() == 1


def test_a_restart_in_any_order_finds_the_same_values():
    rng = Random(3)
    nodes = [thing for i in range(6) for thing in machine(f"n{i}", *gpus(4), model=f"m{i % 2}")]
    pods = [runs(f"p{i}", f"n{i % 6}", i // 6, rng.randint(30, 70)) for i in range(20)]
    shuffled = rng.sample(nodes + pods, k=len(nodes) + len(pods))
    found = []
    for state in ([*nodes, *pods], shuffled):
        offline = scheduler(state, profile())
        waiting, table = offline.add(wants("p", 30)), offline.cluster.table
        scores = offline.profiles["default-scheduler"].plugins[NAME].score_rows(waiting.shape, table, table.all_rows)
        found.append(dict(zip(table.names, scores.tolist(), strict=True)))
    assert found[0] == found[1]
    assert len(set(found[0].values())) > 1


def test_a_node_of_another_model_is_known_after_the_next_look():
    offline = scheduler([*machine("old", *gpus(2), model="a")], profile())
    books = values_of(offline)
    for thing in machine("new", *gpus(2), model="b"):
        offline.add(thing)
    before = books.number
    offline.add(wants("p", 100))
    assert offline.schedule("default/p").node in ("old", "new")
    offline.timers.run()
    assert books.number > before
    assert books.values.gpu.shape[0] == 3


@pytest.mark.parametrize("share", [50, 100, 300, 1600])
def test_a_node_with_more_gpus_than_any_had(share):
    offline = scheduler([*machine("old", *gpus(2)), runs("a", "old", 0, 50)], profile())
    for thing in machine("large", *gpus(16)):
        offline.add(thing)
    offline.add(wants("p", share))
    assert offline.schedule("default/p").node in (("old", "large") if share <= 100 else ("large",))


PICKY = {"nodeSelector": {MODEL: "rare"}}
IN_RARE = {"affinity": node_affinity(required=[term((MODEL, "In", "rare"))])}
LIKES_RARE = {"affinity": node_affinity(preferred=[(1, term((MODEL, "In", "rare")))])}


def with_picky_pod(**spec):
    """A rare node with a pod on it, and a common one."""
    state = [*machine("rare", *gpus(2), model="rare"), *machine("other", *gpus(8), model="common")]
    given = {"gpu": [{"minor": 0, "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"}}]}
    picked = wants("x", 100, on="rare", **spec)
    picked["metadata"]["annotations"] = {ALLOCATED: json.dumps(given)}
    return scheduler([*state, picked], profile())


def test_tasks_that_need_a_model_keep_others_off_it():
    offline = with_picky_pod(**PICKY)
    assert place(offline, wants("p", 100))[0] == "other"
    assert place(offline, wants("q", 100, **PICKY))[0] == "rare"


def test_affinity_that_is_required_needs_a_model_as_a_selector_does():
    needed, required, preferred, free = (
        values_of(with_picky_pod(**spec)).values.gpu.tolist() for spec in (PICKY, IN_RARE, LIKES_RARE, {})
    )
    assert needed == required != preferred == free


def test_memory_is_a_part_of_a_gpu():
    offline = scheduler([*machine("used", *gpus(4)), *CLASSES], profile())
    asked = pod("p", container(cpu="1", memory="1Gi", **{MEMORY: "37Gi"}))  # 47 %, rounded up
    waiting = offline.add(asked)
    assert values_of(offline).task(waiting.shape)[1:] == (1, 47)
    assert place(offline, {**asked, "metadata": {**asked["metadata"], "name": "q", "uid": "q"}}) == ("used", [1])


def test_the_least_part_of_a_gpu():
    offline = scheduler(machine("n", *gpus(2)), profile())
    assert values_of(offline).task(offline.add(wants("p", 1)).shape)[1:] == (1, 1)


RATIO_ALONE = [gpu(minor, **{RATIO: "100"}) for minor in range(2)]


@pytest.mark.parametrize("of", [gpus(2), RATIO_ALONE])
def test_the_balance_of_cpu_is_the_mean_of_what_nodes_have_and_what_pods_take(of):
    offline = scheduler(machine("n", *of, cpu="32"), profile())
    assert values_of(offline).values.balance == 16
    offline.add(runs("a", "n", 0, 100, cpu="8"))
    offline.timers.run()
    assert values_of(offline).values.balance == (16 + 8) / 2


def test_gpus_that_are_not_healthy_do_not_count():
    sick = [gpu(0), gpu(1, health=False)]
    offline = scheduler([*machine("n", *sick)], profile())
    row = offline.cluster.table.row_of["n"]
    assert values_of(offline).fleet(slice(row, row + 1)).gpus[0].tolist()[:2] == [100, 0]


@pytest.mark.parametrize("state", [[node("a"), node("b")], [node("a"), *machine("b", *gpus(2))]])
def test_pods_without_gpus_and_nodes_without_devices(state):
    offline = scheduler(state, profile())
    assert place(offline, pod("p", container(cpu="1", memory="1Gi")))[0] in ("a", "b")


def test_what_is_taken_back_is_not_counted():
    offline = scheduler([*machine("n", *gpus(2))], profile())
    offline.add(wants("p", 50))
    attempt = offline.attempt("default/p")
    attempt.filter()
    with Transaction(offline.cluster, offline.nominator) as transaction:
        assert transaction.place(attempt.cycle, attempt.profile, 0).ok
        assert values_of(offline).seen.pods.total() == 1
    assert not values_of(offline).seen.pods


def test_several_parts_are_left_to_devices():
    offline = scheduler([*machine("n", *gpus(4))], profile())
    asked = pod("p", container(cpu="1", memory="1Gi", **{SHARED: 2, CORE: 100, RATIO: 100}))
    assert place(offline, asked) == ("n", [0, 1])


def test_arguments():
    with pytest.raises(ConfigError, match="refreshAfter: Invalid value: 0: must be greater than zero"):
        resolved({"profiles": [profile({"refreshAfter": 0})]})
    resolved({"profiles": [profile({"refreshAfter": 1})]})


def test_a_replay_goes_on_with_the_values_that_were_worked_out():
    """They are those of pods and nodes that were there then."""
    state = [*machine("one", *gpus(4), model="a"), *machine("two", *gpus(4), model="b")]
    offline = scheduler([*state, runs("a", "one", 0, 50)], profile({"refreshAfter": 3}))
    offline.timers.run()
    later = [runs("b", "two", 0, 20), *machine("new", *gpus(4), model="c")]
    for thing in later[:1]:
        offline.add(thing)
    again = scheduler([*state, runs("a", "one", 0, 50), *later[:1]], profile({"refreshAfter": 3}))
    waiting = wants("p", 30)

    def scores(of):
        table, plugin = of.cluster.table, of.profiles["default-scheduler"].plugins[NAME]
        return plugin.score_rows(of.add(waiting).shape, table, table.all_rows).tolist()

    assert scores(again) != scores(offline)
    epoch = values_of(again).number
    carry_over(offline.profiles["default-scheduler"].handle, again.profiles["default-scheduler"].handle)
    assert values_of(again).number != epoch, "scores of before must not be used"
    assert scores(again) == scores(offline)
    # The timer that is due, and the nodes that come, count there as well.
    for thing in later[1:]:
        offline.add(thing)
        again.add(thing)
    assert scores(again) == scores(offline)
    for each in (offline, again):
        each.timers.run()
    assert scores(again) == scores(offline)
