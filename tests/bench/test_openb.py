"""`python -m bench.openb` as a whole, on a small cluster, and the published policies next to a naive evaluation."""

import json
from collections import Counter
from math import exp
from random import Random

import pytest
from click.testing import CliRunner

from bench.openb.__main__ import main
from bench.openb.rivals import FGD, BestFit, task_of
from bench.openb.runs import MARKS, POLICIES
from bench.openb.traces import GPU, Machine, TraceTask, arrivals, machines, tasks
from tests.plugins.gpufragmentation.naive import Class, Node, fragments

NODES = [("a", 32_000, 4, "T4"), ("b", 96_000, 4, "G2"), ("c", 96_000, 4, "G2"), ("d", 8_000, 1, "T4")]
SMALL = [(4_000, 1, 500, ""), (2_000, 1, 810, ""), (8_000, 1, 1000, "G2|G3"), (16_000, 4, 1000, ""), (6_000, 0, 0, "")]


@pytest.fixture
def directory(tmp_path):
    lines = ["sn,cpu_milli,memory_mib,gpu,model", *(f"{name},{cpu},262144,{n},{m}" for name, cpu, n, m in NODES)]
    (tmp_path / "openb_node_list_gpu_node.csv").write_text("\n".join([*lines, "e,8000,1024,0,"]) + "\n")
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
    rows = [f"p{i},{cpu},1024,{n},{share},{spec}" for i, (cpu, n, share, spec) in enumerate(SMALL * 2)]
    (tmp_path / "openb_pod_list_small.csv").write_text("\n".join([header, *rows]) + "\n")
    plain = [row.rpartition(",")[0] for row in [header, *rows]]
    (tmp_path / "openb_pod_list_plain.csv").write_text("\n".join(plain) + "\n")
    marks = ",".join(f"allocated_at_{mark}" for mark in MARKS)
    results = [f"{trace},FGD,10,{','.join(str(min(mark, 90)) for mark in MARKS)}" for trace in ("small", "plain")]
    (tmp_path / "published.csv").write_text("\n".join([f"trace,policy,runs,{marks}", *results]) + "\n")
    return tmp_path


def run(directory, *flags):
    out = directory / "out"
    given = [str(directory), "--jobs", "1", "--out", str(out), *flags]
    ran = CliRunner().invoke(main, given, catch_exceptions=False)
    assert ran.exit_code == 0
    return ran.output, json.loads((out / "openb.json").read_text())


def test_the_command_fills_the_cluster(directory):
    output, found = run(directory, "--seeds", "2")
    assert [run[0] for run in found["filled"]] == ["plain", "plain", "small", "small"]
    for _, allocated, decisions, seconds in found["filled"]:
        assert allocated == sorted(allocated)
        # All of it fits at first, more than there is never does.
        assert 40 <= allocated[0] <= 60
        assert allocated[-1] <= 100
        assert decisions >= len(SMALL) * 2
        assert seconds > 0
    assert "decisions per second of CPU" in output
    chart = (directory / "out" / "openb.svg").read_text()
    assert chart.count("<polyline") == 2
    assert "FGD, published" in chart


def test_the_command_lets_tasks_end(directory):
    output, found = run(directory, "--seeds", "1", "--trace", "small", "--departures", "--turnovers", "30")
    assert [(trace, policy) for trace, policy, _ in found["rejected"]] == [("small", policy) for policy in POLICIES]
    # Tasks of four GPUs are rejected when nodes are used in part, but small ones come to their place again and again.
    assert all(0 < percent < 60 for _, _, percent in found["rejected"])
    assert "rejected tasks" in output


@pytest.mark.parametrize("flags, message", [((), "no traces"), (("--trace", "none"), "openb_node_list_gpu_node.csv")])
def test_what_cannot_be_run(flags, message, tmp_path):
    ran = CliRunner().invoke(main, [str(tmp_path), "--jobs", "1", *flags])
    assert ran.exit_code != 0
    assert message in str(ran.exception)


def test_reading(directory):
    assert machines(directory)[0] == Machine("a", 32_000, 262_144, 4, "T4")
    assert len(machines(directory)) == len(NODES)
    assert tasks(directory, "small")[2] == TraceTask(8_000, 1024, 1, 1000, ("G2", "G3"))
    assert tasks(directory, "plain")[2].models == ()
    assert tasks(directory, "small")[4].gpu == 0


def test_tasks_arrive_until_the_next_would_be_too_much(directory):
    every = tasks(directory, "small")
    found = arrivals(every, 13, 130, Random(1))
    assert Counter(found[: len(every)]) == Counter(every)
    arrived = sum(task.gpu for task in found)
    assert 13 * GPU * 1.3 - max(task.gpu for task in every) < arrived <= 13 * GPU * 1.3
    assert arrivals(every, 13, 130, Random(1)) == found != arrivals(every, 13, 130, Random(2))
    assert sum(task.gpu for task in arrivals(every, 1, 130, Random(1))) == sum(task.gpu for task in every)


def naive_nodes(rival):
    fleet = rival.fleet
    return [
        Node(cpu, tuple(gpus), kind)
        for cpu, gpus, kind in zip(fleet.cpu.tolist(), fleet.gpus.tolist(), fleet.kind.tolist(), strict=True)
    ]


def placements(node, task, wanted):
    """Every way to put a task on a node: (minors, the node after it)."""
    whole = [minor for minor, free in enumerate(node.gpus) if free == 100]
    if not wanted.number:
        ways = [()]
    elif wanted.share == 100:
        ways = [tuple(whole[: wanted.number])]
    else:
        ways = [(minor,) for minor, free in enumerate(node.gpus) if free >= wanted.share]
    for minors in ways:
        gpus = tuple(free - wanted.share * (minor in minors) for minor, free in enumerate(node.gpus))
        yield minors, Node(node.cpu - task.cpu, gpus, node.kind)


def test_fgd_goes_by_the_fragmentation_of_the_typical_tasks(directory):
    every, trace = machines(directory), tasks(directory, "small")
    rival = FGD(every, trace)
    classes = [
        (Class(task.cpu, task.number, task.share // 10, tuple(rival.allowed(task).tolist()), 1), count / len(trace))
        for task, count in Counter(trace).items()
    ]

    def fragmented(node):
        total = 0.0
        for each, weight in classes:
            total += weight * (fragments(node, each) if each.number else sum(node.gpus) / 100)
        return total

    rng, placed = Random(4), 0
    for _ in range(40):
        task = rng.choice(trace)
        wanted = task_of(task)
        best = (-1, None, None)
        for row, node in enumerate(naive_nodes(rival)):
            if node.cpu < task.cpu or sum(free >= wanted.share for free in node.gpus) < wanted.number:
                continue
            if task.models and rival.models[node.kind] not in task.models:
                continue
            ways = [(fragmented(node) - fragmented(after), minors) for minors, after in placements(node, task, wanted)]
            gained, minors = max(ways, key=lambda way: (round(way[0], 9), [-minor for minor in way[1]]))
            score = int(100 / (1 + exp(-gained)))
            if score > best[0]:
                best = (score, row, minors)
        found = rival.place(task)
        if best[1] is None:
            assert found is None
            continue
        placed += 1
        assert found.row == best[1]
        before = [node.gpus for node in naive_nodes(rival)][found.row]
        assert sorted(before[minor] for minor in found.minors.tolist()) == sorted(before[minor] for minor in best[2])
    assert placed > 10


def test_best_fit_takes_the_fullest_node_and_gpu_and_gives_back(directory):
    rival = BestFit(machines(directory))
    tasks_of_half = [TraceTask(1_000, 1024, 1, 500, ())] * 3
    places = [rival.place(task) for task in tasks_of_half]
    # The machine with one GPU first, its GPU to the end; then the one with less CPU.
    assert [(place.row, place.minors.tolist()) for place in places] == [(3, [0]), (3, [0]), (0, [0])]
    for task, place in zip(tasks_of_half, places, strict=True):
        rival.remove(task, place)
    assert rival.fleet.gpus.tolist() == [[100] * 4, [100] * 4, [100] * 4, [100, 0, 0, 0]]
    assert rival.fleet.cpu.tolist() == [cpu for _, cpu, _, _ in NODES]
