"""The naive model on random states: what it hands out holds together, and the states reach all that it can do."""

import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.plugins.deviceshare import naive
from tests.plugins.deviceshare.implementation import NaiveImplementation
from tests.plugins.deviceshare.naive.amounts import fits
from tests.plugins.deviceshare.naive.books import World
from tests.plugins.deviceshare.naive.request import CORE, ERROR, MEMORY, RATIO, SCHEDULING_HINTS, UAU, U
from tests.plugins.deviceshare.randomstates import random_state

SEEDS = range(24)
MODEL = NaiveImplementation()
TEXTS = {
    "GPUIsolationProviderHAMICore not found on the node",
    "Insufficient GPU Devices",
    "Insufficient Partitioned GPU Devices",
    "Insufficient Topology Scoped GPU Devices",
    "Insufficient fpga devices",
    "Insufficient gpu devices",
    "Insufficient rdma devices",
    "Insufficient gpu VirtualFunctions",
    "Insufficient rdma VirtualFunctions",
    "Insufficient NUMA Scoped Devices",
    "Designated Allocation Lack NUMA Node ID",
    "Unaligned NUMA Hint",
    "no matched GPU shared resource template",
    "node(s) Device Joint-Allocate rules violation",
    "node(s) Unsupported Multi-Shared GPU",
    "node(s) Unsupported number of GPU requests",
    "node(s) missing GPU Device Topology Tree",
    "node(s) missing GPU Partition Table",
}
BEGINNINGS = {"model", "fillGPUTotalMem failed", "failed to adapt for GPU device plugin of vendor"}
EARLY = {
    "<what the decoder says>",
    "invalid DeviceAllocateHint annotation, err",
    "invalid DeviceJointAllocate annotation, err",
    "invalid GPUPartitionSpec annotation, err",
    "invalid resource device requests",
    "invalid resource unit koordinator.sh/fpga",
    "invalid resource unit koordinator.sh/gpu",
    "invalid resource unit koordinator.sh/rdma",
    "no matched GPU shared resource template",
}
ELSEWHERE = {
    """raise Refused(U, "node(s) Insufficient primary device")""",  # no allocation is a refusal already
    """raise Refused(U, *(f"Insufficient {kind} devices" for kind in self.each))""",  # the same
    """raise Refused(ERROR, f'device.scheduling.koordinator.sh "{name}" not found')""",  # nothing was allocated
    """except numa.Refused as refused:""",  # only pods that are bound to CPUs
    """reasons += refused.verdict.reasons""",
}
"""Lines that these states do not reach."""


def decisions(seeds, odd=False, **more):
    """(state, pod, Decision) of every pod of the states. `more`: arguments."""
    for seed in seeds:
        state = random_state(seed, odd=odd)
        for pod in state.pending:
            yield state, pod, MODEL.decide(state.objects, pod, {**state.args, **more}, gates=state.gates)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_handed_out_holds_together(seed, odd):
    for _, pod, decision in decisions([seed], odd):
        designated = any(key in pod["metadata"]["annotations"] for key in SCHEDULING_HINTS)
        for name, said in decision.verdicts.items():
            placed = decision.place(name) if said.passed else None
            books = decision.world.books.get(name)
            if placed is None or placed.devices is None:
                assert placed is None or not placed.said.passed or books is None or decision.asked.skip
                continue
            gpus = placed.devices.get("gpu", ())
            assert decision.asked.gpus is None or len(gpus) >= decision.asked.gpus.count
            for kind, entries in placed.devices.items():
                minors = [entry["minor"] for entry in entries]
                assert len(set(minors)) == len(minors)
                free = books.free(kind)
                for entry in entries:
                    known = books.entry(kind, entry["minor"])
                    assert known["health"]
                    assert entry.get("id") == known["id"]
                    own = {n: amount for n, amount in entry["resources"].items() if n not in (MEMORY, RATIO)}
                    assert fits(own, free[entry["minor"]])
                    for function in entry.get("extension", {}).get("vfs", ()):
                        assert function["busID"] not in books.vfs.get(kind, {}).get(entry["minor"], ())
            assert all({MEMORY, RATIO} <= set(entry["resources"]) for entry in gpus)
            assert designated or set(placed.devices) == set(decision.asked.requests)


def test_a_pod_that_was_placed_is_read_back_from_its_annotations():
    placed = 0
    for state, pod, decision in decisions(range(10)):
        if not decision.early.passed or decision.asked.skip:
            continue
        for name in decision.raw:
            _, allocation = decision.devices.reserve(decision.asked, name)
            if allocation is None:
                continue
            written = decision.devices.written(decision.asked, name, allocation, adapt=False)
            metadata = {**pod["metadata"], "annotations": written["annotations"]}
            bound = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": name}}
            books = World(*state.objects, bound).books[name]
            held = books.held(f"default/{pod['metadata']['name']}")
            assert held == {
                kind: {each["minor"]: each["resources"] for each in taken} for kind, taken in allocation.items()
            }
            for kind, devices in held.items():
                before = decision.world.books[name].used.get(kind, {})
                for minor, amounts in devices.items():
                    used = books.used[kind][minor]
                    assert used == {n: before.get(minor, {}).get(n, 0) + amounts.get(n, 0) for n in used}
            bound["status"] = {"phase": "Succeeded"}
            again = World(*state.objects, bound).books[name]
            assert again.used == decision.world.books[name].used
            placed += 1
    assert placed > 50


@pytest.mark.slow
def test_random_states_reach_every_verdict():
    early, texts, codes, forms = set(), set(), Counter(), Counter()
    for _, _, decision in decisions(range(200)):
        if not decision.early.passed:
            early |= {reason.partition(": ")[0] for reason in decision.early.reasons}
            continue
        for name, said in decision.verdicts.items():
            placed = decision.place(name) if said.passed else None
            said = placed.said if placed else said
            codes[said.code] += 1
            texts |= {reason.partition(" cause ")[0] for reason in said.reasons}
            if placed and placed.devices:
                forms[frozenset(placed.devices)] += 1
                forms["core"] += any(CORE in entry["resources"] for entry in placed.devices.get("gpu", ()))
                forms["template"] += "gpuSharedResourceTemplate" in str(placed.devices)
                forms["vfs"] += "vfs" in str(placed.devices)
                forms["numa"] += "numaNodeResources" in str(placed.numa)
    assert early == EARLY
    assert {text for text in texts if text in TEXTS} == TEXTS
    assert all(any(text.startswith(beginning) for text in texts) for beginning in BEGINNINGS)
    assert set(codes) == {"Success", U, UAU, ERROR}
    kinds = {"gpu", "rdma", "fpga"}
    every = [frozenset(some) for some in ({"gpu"}, {"rdma"}, {"fpga"}, {"gpu", "rdma"}, kinds)]
    assert all(forms[form] > 3 for form in [*every, "core", "template", "vfs", "numa"]), forms


@pytest.mark.slow
def test_random_states_reach_every_line():
    reached = Lines(Path(naive.__file__).parent)
    with reached:
        for state, pod, decision in chain(decisions(range(100)), decisions(range(50), improvedAllocation=True)):
            for at, (name, said) in enumerate(decision.verdicts.items()):
                if said.passed:
                    decision.place(name)
                elif said.code == U and at == 0:
                    MODEL.victims(of_node(state.objects, name), pod, state.args)
    missing = reached.missing("allocation", "partitions", "scopes", "scoring", "numa", "request", "adapters", "model")
    assert [line for line in missing if line.partition(" ")[2] not in ELSEWHERE] == []


def of_node(objects, name):
    """Those objects that say something of a node, or of none."""
    others = [thing for thing in objects if thing["kind"] == "ConfigMap"]
    named = [thing for thing in objects if thing["metadata"]["name"] == name]
    return [*others, *named, *(thing for thing in objects if thing.get("spec", {}).get("nodeName") == name)]


class Lines:
    """Which lines of the modules in a folder run while it is entered."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.seen = set()

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *error):
        sys.settrace(self.before)

    def trace(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self.trace

    def missing(self, *modules):
        """`module:line text` of lines of functions that did not run."""
        found = []
        for module in modules:
            path = f"{self.folder}/{module}.py"
            text = Path(path).read_text()
            lines = text.splitlines()
            for code in functions(compile(text, path, "exec")):
                for _, _, line in code.co_lines():
                    if line and line != code.co_firstlineno and (path, line) not in self.seen:
                        found.append(f"{module}:{line} {lines[line - 1].strip()}")
        return sorted(set(found))


def functions(code):
    """The code of all functions in a module."""
    for constant in code.co_consts:
        if hasattr(constant, "co_lines"):
            if constant.co_flags & 2:  # a function, not a class body
                yield constant
            yield from functions(constant)
