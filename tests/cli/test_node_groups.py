"""`koordsched simulate --node-groups`: nodes to add, and nodes that could go."""

from pathlib import Path
from random import Random

import pytest
import yaml

from koordsched.cli.capacity import FULL
from koordsched.cli.capacity_report import capacity_report
from koordsched.cli.nodegroups import NodeGroup
from koordsched.cli.offline import empty_scheduler, load_config
from koordsched.cli.simulation import Simulation
from tests.cli.clusters import bound, node, pod, run, run_json, write

EXAMPLES = Path(__file__).parents[2] / "config" / "examples" / "node-groups"
HOSTNAME = "kubernetes.io/hostname"


def owned(made, kind="ReplicaSet", name="owner"):
    """The pod, made by a controller."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def labelled(made, **labels):
    made["metadata"]["labels"] = labels
    return made


def group(name, cpu="4", labels=None, **more):
    """A group of nodes of so many CPUs."""
    template = {"labels": labels or {"pool": name}, "allocatable": {"cpu": cpu, "memory": "64Gi"}}
    return {"name": name, "template": {**template, **more.pop("template", {})}, **more}


def capacity(tmp_path, groups, *objects):
    """(exit code, what is said of the groups)."""
    file = tmp_path / "groups.yaml"
    file.write_text(yaml.safe_dump(groups))
    code, report = run_json("simulate", "-f", write(tmp_path / "a.yaml", *objects), "--node-groups", str(file))
    return code, report["nodeGroups"]


def plans(found):
    return [(plan["nodes"], plan["run"], plan["pending"]) for plan in found["plans"]]


def several(count, cpu="2", name="p", **spec):
    return [pod(f"{name}{i}", cpu, **spec) for i in range(count)]


@pytest.mark.parametrize("count", [1, 3, 4, 30, 31])
def test_replicas(tmp_path, count):
    code, found = capacity(tmp_path, [group("a", "7500m")], *several(count))
    assert (code, found["waiting"]) == (3, count)
    assert plans(found) == [({"a": -(-count // 3)}, count, 0)]


def test_what_fits_on_the_nodes_that_there_are_needs_none(tmp_path):
    code, found = capacity(tmp_path, [group("a")], node("n1"), *several(2))
    assert (code, found["waiting"], found["plans"]) == (0, 0, [])
    _, found = capacity(tmp_path, [group("a")], node("n1"), *several(3))
    assert (found["waiting"], plans(found)) == (1, [({"a": 1}, 1, 0)])


def test_one_pod_to_a_node(tmp_path):
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [labelled(made, app="x") for made in several(5, "100m", affinity=affinity)]
    _, found = capacity(tmp_path, [group("a"), group("b", "64")], node("n1"), *pods)
    assert found["waiting"] == 4
    assert plans(found) == [({"a": 4}, 4, 0), ({"b": 4}, 4, 0)]


def test_zones_that_pods_are_spread_over(tmp_path):
    """A group of one zone helps some of them, one that spans the zones all, and so do three groups."""
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    pods = [labelled(made, app="x") for made in several(6, "3", topologySpreadConstraints=[spread])]
    zoned = [group(f"in-{zone}", template={"zones": [zone]}) for zone in "abc"]
    spanning = group("all", template={"zones": ["a", "b", "c"]})
    nodes = [node(f"n{zone}", "1", labels={"topology.kubernetes.io/zone": zone}) for zone in "abc"]
    _, found = capacity(tmp_path, [*zoned, spanning], *nodes, *pods)
    assert plans(found)[0] in [({"all": 6}, 6, 0), ({"in-a": 2, "in-b": 2, "in-c": 2}, 6, 0)]
    assert ({"in-a": 1}, 1, 5) in plans(found)
    _, found = capacity(tmp_path, zoned, *nodes, *pods)
    assert plans(found)[0] == ({"in-a": 2, "in-b": 2, "in-c": 2}, 6, 0)


def test_groups_for_different_pods(tmp_path):
    gpu = {"allocatable": {"cpu": "8", "memory": "64Gi", "example.com/gpu": 2}}
    gpu["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    training = several(
        3, "1", "t", requests={"example.com/gpu": "1"}, tolerations=[{"key": "gpu", "operator": "Exists"}]
    )
    for made in training:
        made["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    _, found = capacity(tmp_path, [group("a"), group("gpu", template=gpu)], *several(4), *training)
    assert plans(found) == [({"a": 2, "gpu": 2}, 7, 0), ({"a": 2}, 4, 3), ({"gpu": 2}, 3, 4)]


def test_fewest_nodes_and_least_cost(tmp_path):
    groups = [group("small", cost=1.0), group("large", "16", cost=10.0)]
    _, found = capacity(tmp_path, groups, *several(8))
    assert [(plan["nodes"], plan["total"], plan["cost"]) for plan in found["plans"]] == [
        ({"large": 1}, 1, 10.0),
        ({"small": 4}, 4, 4.0),
    ]
    _, found = capacity(tmp_path, [groups[0], group("large", "16")], *several(8))
    assert [plan["cost"] for plan in found["plans"]] == [None, 4.0]


def test_the_most_that_a_group_may_have(tmp_path):
    """Nodes that are there count; another group takes what is left."""
    full = bound("busy", "n1", "4")
    small, large = group("small", max=3), group("large", "8", max=1)
    _, found = capacity(tmp_path, [small], node("n1", labels={"pool": "small"}), full, *several(6))
    assert plans(found) == [({"small": 2}, 4, 2)]
    assert found["groups"] == [{"name": "small", "nodes": 1, "min": 0, "max": 3}]
    _, found = capacity(tmp_path, [small, large], node("n1", labels={"pool": "small"}), full, *several(7))
    assert plans(found)[0] == ({"small": 2, "large": 1}, 7, 0)
    _, found = capacity(tmp_path, [group("small", max=1)], node("n1", labels={"pool": "small"}), full, *several(1))
    assert (found["plans"], found["unhelped"][0]["reasons"]) == ([], {"small": FULL})


def test_daemons_come_with_new_nodes(tmp_path):
    """So three pods of a CPU fit on a node of four, where one has a DaemonSet's pod."""
    state = [
        node("n1", labels={"pool": "a"}),
        owned(bound("agent-x", "n1", "1"), "DaemonSet", "agent"),
        bound("busy", "n1", "3"),
        *several(6, "1"),
    ]
    for way in (group("a"), {"name": "a", "like": "n1"}, {"name": "a", "selector": {"pool": "a"}}):
        assert plans(capacity(tmp_path, [way], *state)[1]) == [({"a": 2}, 6, 0)]
    assert plans(capacity(tmp_path, [group("b")], *state)[1]) == [({"b": 2}, 6, 0)]
    assert plans(capacity(tmp_path, [group("b")], *state, *several(2, "1", "q"))[1]) == [({"b": 2}, 8, 0)]
    assert plans(capacity(tmp_path, [group("a")], *state, *several(2, "1", "q"))[1]) == [({"a": 3}, 8, 0)]


def test_pods_that_no_group_helps(tmp_path):
    huge, gated = pod("huge", "100"), pod("gated", schedulingGates=[{"name": "later"}])
    picky = pod("picky", nodeSelector={"disk": "ssd"})
    code, found = capacity(tmp_path, [group("a"), group("b")], node("n1"), huge, picky, gated, *several(4))
    assert (code, found["waiting"]) == (3, 4)
    assert plans(found) == [({"a": 1}, 2, 2), ({"b": 1}, 2, 2)]
    selector = "node(s) didn't match Pod's node affinity/selector"
    assert [(one["example"], one["pods"], one["reasons"]) for one in found["unhelped"]] == [
        ("default/huge", 1, {"a": "Insufficient cpu", "b": "Insufficient cpu"}),
        ("default/picky", 1, {"a": selector, "b": selector}),
    ]


def some_waiting(seed):
    """(a scheduler with more pods than fit, the CPU of those that wait, in thousandths)."""
    rng = Random(seed)
    resolved, _ = load_config(None)
    scheduler = empty_scheduler(resolved, seed)
    for i in range(4):
        scheduler.add(node(f"n{i}", "4", labels={"pool": "small"}))
        scheduler.add(owned(bound(f"r{i}", f"n{i}", rng.choice(["1", "3"]))))
    asked = {f"default/p{i}": rng.choice([250, 500, 1000, 1500, 3000]) for i in range(rng.randrange(20, 60))}
    for key, cpu in asked.items():
        scheduler.add(pod(key.removeprefix("default/"), f"{cpu}m", priority=rng.choice([0, 10])))
    return scheduler, [asked[outcome.pod] for outcome in Simulation(scheduler).run() if not outcome.node]


@pytest.mark.parametrize("seed", range(8))
def test_random_pods(seed):
    """Against what resources alone say: no plan may do with less. What a plan says is so, and all is left as it was."""
    scheduler, waiting = some_waiting(seed)
    before = state_of(scheduler)
    templates = {"small": 4000, "large": 10000}
    groups = [
        NodeGroup(name, template=group(name, f"{cpu}m")["template"], cost=cpu / 1000) for name, cpu in templates.items()
    ]
    report = capacity_report(scheduler, groups, seed)
    assert state_of(scheduler) == before
    assert report.waiting == len(waiting)
    for plan in report.plans:
        offered = sum(templates[name] * count for name, count in plan.nodes.items())
        assert (plan.run, plan.pending) == (len(waiting), 0)
        assert offered + free(scheduler) >= sum(waiting)
        # Of two nodes that are less than half full one would have been left out.
        assert offered <= 2 * sum(waiting) + 2 * max(templates[name] for name in plan.nodes)
    assert [plan.total for plan in report.plans] == sorted(plan.total for plan in report.plans)
    assert capacity_report(some_waiting(seed)[0], groups, seed) == report


def state_of(scheduler):
    """All that a search might have left behind."""
    cluster, table = scheduler.cluster, scheduler.cluster.table
    columns = (*table.requested, *table.requested_nonzero, table.pods_count)
    return (
        dict(table.row_of),
        {uid: (made.node, made.row) for uid, made in cluster.assigned.items()},
        set(cluster.assumed),
        {name: [int(column.data[row]) for column in columns] for name, row in table.row_of.items()},
        list(scheduler.pending),
        dict(cluster.orphans),
    )


def free(scheduler):
    """CPU that no pod requests, in thousandths."""
    table = scheduler.cluster.table
    return int((table.allocatable[0].data - table.requested[0].data)[: table.size].sum())


# --- nodes that could go ---------------------------------------------------------------------------------


def removable(tmp_path, *objects, **more):
    _, found = capacity(tmp_path, [group("a", **more)], *objects)
    return {one["node"]: one["pods"] for one in found["removable"]}


def members(count):
    return [node(f"n{i}", labels={"pool": "a"}) for i in range(count)]


def test_empty_nodes_could_go(tmp_path):
    daemon = owned(bound("agent", "n1", "1"), "DaemonSet")
    static = owned(bound("proxy", "n2", "1"), "Node")
    other = node("other", "1")
    busy = owned(bound("busy", "n0", "4"))
    assert removable(tmp_path, *members(3), other, busy, daemon, static) == {"n1": {}, "n2": {}}
    assert list(removable(tmp_path, *members(3), other, busy, daemon, static, min=2)) == ["n1"]
    assert removable(tmp_path, *members(3), other, busy, daemon, static, min=3) == {}


def test_nodes_whose_pods_fit_elsewhere(tmp_path):
    """Jointly: two that are half full go to each other's node once."""
    halves = [owned(bound(f"p{i}", f"n{i}", "2")) for i in range(2)]
    assert removable(tmp_path, *members(2), *halves) == {"n0": {"default/p0": "n1"}}
    three = [owned(bound(f"p{i}", f"n{i}", "3")) for i in range(2)]
    assert removable(tmp_path, *members(2), *three) == {}


def test_moved_pods_may_move_on(tmp_path):
    pods = [owned(bound(f"p{i}", f"n{i}", "1")) for i in range(4)]
    found = removable(tmp_path, *members(4), *pods)
    assert len(found) == 3
    assert sum(len(moves) for moves in found.values()) >= 3


def test_pods_that_keep_their_node(tmp_path):
    state = [*members(2), owned(bound("large", "n1", "2"))]
    assert list(removable(tmp_path, *state, owned(bound("p", "n0", "1")))) == ["n0"]
    # Nothing would make it anew; nothing can be said of what another scheduler would do.
    assert list(removable(tmp_path, *state, bound("bare", "n0", "1"))) == ["n1"]
    assert list(removable(tmp_path, *state, owned(bound("p", "n0", "1", schedulerName="other")))) == ["n1"]


@pytest.mark.parametrize(("allowed", "expected"), [(0, ["n2"]), (1, ["n0", "n2"])])
def test_disruption_budgets(tmp_path, allowed, expected):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default", "uid": "b"},
        "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    pods = [labelled(owned(bound(f"p{i}", f"n{i}", "1")), app="web") for i in range(2)]
    other = owned(bound("p2", "n2", "2"))
    assert sorted(removable(tmp_path, *members(3), *pods, other, budget)) == expected


def test_room_that_pending_pods_take_is_not_free(tmp_path):
    assert list(removable(tmp_path, *members(2), owned(bound("p", "n0", "2")))) == ["n1"]
    assert removable(tmp_path, *members(2), owned(bound("p", "n0", "2")), pod("w", "4")) == {}


def test_a_group_that_helps_pods_that_wait_keeps_its_nodes(tmp_path):
    state = [*members(2), owned(bound("p", "n0", "1")), owned(bound("q", "n1", "1"))]
    assert len(removable(tmp_path, *state)) == len(removable(tmp_path, *state, pod("huge", "9"))) == 1
    assert removable(tmp_path, *state, pod("w", "4")) == {}


@pytest.mark.parametrize("seed", range(6))
def test_what_could_go_leaves_room_for_all(seed):
    """The nodes are really taken away, their pods placed anew, and the others stay where they are."""
    rng = Random(seed)
    resolved, _ = load_config(None)
    sizes = {f"n{i}": rng.choice([4, 8]) for i in range(10)}
    nodes = [node(name, str(cpu), labels={"pool": "a"}) for name, cpu in sizes.items()]
    running, left = [], dict(sizes)
    for i in range(25):
        on, cpu = rng.choice(list(sizes)), rng.choice([1, 2])
        if left[on] >= cpu:
            left[on] -= cpu
            running.append(owned(bound(f"r{i}", on, str(cpu))))
    scheduler = empty_scheduler(resolved)
    for made in (*nodes, *running):
        scheduler.add(made)
    before = state_of(scheduler)
    report = capacity_report(scheduler, [NodeGroup("a", selector={"pool": "a"})], seed)
    assert state_of(scheduler) == before
    gone = {one.node for one in report.removable}
    where = {f"default/{made['metadata']['name']}": made["spec"]["nodeName"] for made in running}
    for one in report.removable:
        assert all(where[key] == one.node for key in one.pods)
        where |= one.pods
    assert not gone & set(where.values())
    used = dict.fromkeys(sizes, 0)
    for made in running:
        used[where[f"default/{made['metadata']['name']}"]] += int(
            made["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        )
    assert all(used[name] <= sizes[name] for name in sizes)
    assert gone


# --- files, tables ----------------------------------------------------------------------------------------


def test_the_example(tmp_path):
    arguments = ["-f", str(EXAMPLES / "cluster.yaml"), "--node-groups", str(EXAMPLES / "groups.yaml")]
    result = run("simulate", *arguments)
    assert result.exit_code == 3
    said = [" ".join(line.split()) for line in result.stdout.splitlines()]
    at = said.index("ADD NODES OF COST PODS THAT RUN PENDING")
    assert said[at + 1 :] == [
        "4 large 2, gpu 2 23 27 1",
        "2 large 3.8 24 4",
        "8 general 3.2 24 4",
        "2 gpu 19.2 3 25",
        "no group helps: shop/huge",
        "general: Insufficient cpu",
        "large: Insufficient cpu",
        "memory: node(s) had untolerated taint(s)",
        "gpu: node(s) had untolerated taint(s)",
        "",
        "COULD GO GROUP PODS",
        "memory-1 memory 1",
    ]
    assert run("simulate", *arguments).stdout == result.stdout


def test_tables(tmp_path):
    file = tmp_path / "groups.yaml"
    file.write_text(yaml.safe_dump([group("a")]))
    state = write(tmp_path / "a.yaml", *members(25), owned(bound("p", "n0", "1")))
    said = run("simulate", "-f", state, "--node-groups", str(file)).stdout
    assert "No node has to be added." in said
    assert "(and 4 more; -o wide lists all, and where their pods would go)" in said
    wide = run("simulate", "-f", state, "--node-groups", str(file), "-o", "wide").stdout
    assert wide.count(" a ") == 24
    state = write(tmp_path / "a.yaml", node("n1"), pod("huge", "100"))
    said = run("simulate", "-f", state, "--node-groups", str(file)).stdout
    assert "No node of any group would help." in said
    assert said.endswith("No node of these groups could go.\n")


BAD = {
    "[]": "at least one group is needed",
    "{}": "Expected `array`",
    "a: [": "expected",
    "- {name: a}": "group 'a': template, like or selector is needed",
    "- {name: a, like: n1, typo: 1}": "unknown field `typo`",
    "- {name: a, like: n1}\n- {name: a, like: n1}": "group 'a': each group needs a name of its own",
    "- {name: '', like: n1}": "each group needs a name of its own",
    "- {name: a, like: n1, template: {allocatable: {cpu: 1}}}": "group 'a': template and like exclude each other",
    "- {name: a, like: n1, min: 3, max: 2}": "group 'a': 0 <= min <= max and cost >= 0 are needed",
    "- {name: a, like: n1, cost: -1}": "0 <= min <= max and cost >= 0 are needed",
    "- {name: a, template: {labels: {}}}": "group 'a': Object missing required field `capacity`",
    "- {name: a, template: {allocatable: {cpu: much}}}": "group 'a': templates[0].capacity.cpu",
    "- {name: a, like: nowhere}": "node group a: there is no node nowhere",
    "- {name: a, selector: {pool: nowhere}}": "node group a: no node has the labels of its selector",
}


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=BAD.values())
def test_files_that_cannot_be_used(tmp_path, text, message):
    file = tmp_path / "groups.yaml"
    file.write_text(text)
    state = write(tmp_path / "a.yaml", node("n1"), pod("a"))
    result = run("simulate", "-f", state, "--node-groups", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path):
    state = write(tmp_path / "a.yaml", node("n1"))
    result = run("simulate", "-f", state, "--node-groups", str(tmp_path / "none.yaml"))
    assert (result.exit_code, "No such file or directory" in result.stderr) == (1, True)
