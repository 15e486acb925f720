"""Topologies: what is computed once, and questions about sets of CPUs."""

import copy
import pickle
import random

import numpy as np
import pytest

from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.plugins.shared import cpuset
from tests.plugins.nodenumaresource.naive_cpus import random_machine
from tests.plugins.nodenumaresource.topologies import cpus_of, machine


def ids(text):
    return cpuset.parse(text)


def test_a_machine_with_linux_numbers():
    t = machine(2, 1, 4, linux=True)
    assert (t.cpus, t.valid) == (ids("0-15"), True)
    assert (t.cpus_per_core, t.cpus_per_node, t.cpus_per_socket) == (2, 8, 8)
    assert t.cores == tuple(ids(f"{core},{core + 8}") for core in range(8))
    assert t.node_cpus == t.sockets == {0: ids("0-3,8-11"), 1: ids("4-7,12-15")}
    assert t.places == ((0, 0, ids("0-3,8-11")), (1, 1, ids("4-7,12-15")))
    assert t.order.tolist() == [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    assert t.core_starts.tolist() == list(range(0, 16, 2))
    assert t.node_starts.tolist() == [0, 8]
    assert {array.dtype for array in (t.order, t.core_starts, t.node_starts)} == {np.dtype(np.intp)}


def test_sums_per_core_and_numa_node_by_reduceat():
    t = machine(2, 2, 3, linux=True)
    taken = np.zeros(24, np.int64)
    taken[cpuset.ids(ids("0,12,1,14"))] = 1
    assert np.add.reduceat(taken[t.order], t.core_starts).tolist() == [2, 1, 1, *[0] * 9]
    assert np.add.reduceat(taken[t.order], t.node_starts).tolist() == [4, 0, 0, 0]


def test_numbers_of_cores_may_repeat_on_another_socket():
    t = CPUTopology((cpu, cpu % 4 // 2, cpu // 4, cpu // 4) for cpu in range(8))
    assert t.cores == (ids("0-1"), ids("2-3"), ids("4-5"), ids("6-7"))
    assert t.cpus_per_core == 2


def test_questions_about_cores():
    t = machine(1, 2, 4, linux=True)
    free = ids("0,8,1,10,3,11,12-14")
    assert t.full_cores(free) == ids("0,8,3,11")
    assert t.one_per_core(free) == ids("0,1,10,3,12-14") & ~ids("8,11")
    assert t.whole_cores(ids("9,4")) == ids("1,9,4,12")
    assert t.numa_nodes_of(ids("3,8")) == [0]
    assert t.numa_nodes_of(ids("3,12")) == [0, 1]
    assert t.numa_nodes_of(0) == []


def test_cpus_that_the_machine_does_not_have_are_none_of_its_cores():
    t = CPUTopology(cpus_of(1, 1, 2))
    assert t.full_cores(ids("2-9,100")) == ids("2-3")
    assert t.one_per_core(ids("1-9,100")) == ids("1-2")
    assert t.whole_cores(ids("1,9,100")) == ids("0-1")
    assert t.numa_nodes_of(ids("100")) == []


def test_with_cpus_offline_a_full_core_has_as_many_cpus_as_the_average():
    """Upstream's: 7 CPUs on 4 cores are 1 per core, rounded down, and only cores with 1 CPU available count."""
    t = CPUTopology(cpu for cpu in cpus_of(1, 1, 4) if cpu[0] != 7)
    assert t.cpus_per_core == 1
    assert t.full_cores(ids("0-6")) == ids("6")
    assert t.full_cores(ids("0,2-6")) == ids("0,6")
    assert t.one_per_core(ids("1-6")) == ids("1-2,4,6")


def test_a_numa_node_on_two_sockets_counts_for_each():
    t = CPUTopology((cpu, cpu // 2, cpu // 4, 0) for cpu in range(8))
    assert (t.cpus_per_node, t.cpus_per_socket) == (4, 4)
    assert t.nodes == ((0, ids("0-7"), ids("0-7")),)
    assert t.places == ((0, 0, ids("0-3")), (0, 1, ids("4-7")))


def test_topologies_are_equal_by_content():
    cpus = cpus_of(2, 1, 4)
    assert CPUTopology(reversed(cpus)) == CPUTopology(cpus)
    assert len({CPUTopology(reversed(cpus)), CPUTopology(cpus), machine(2, 1, 4, linux=True)}) == 2
    assert CPUTopology(cpus) != cpus
    assert pickle.loads(pickle.dumps(machine(2, 1, 4))) == copy.deepcopy(machine(2, 1, 4)) == CPUTopology(cpus)


def test_arrays_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        machine(1, 1, 1).order[0] = 7


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ([], "there are no CPUs"),
        ([(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0)], "there is more than one CPU 0"),
        ([(-1, 0, 0, 0)], "id -1 of a CPU is not within 0..4095"),
        ([(4096, 0, 0, 0)], "id 4096 of a CPU is not within 0..4095"),
        ([(0, -1, 0, 0)], "core -1 of a CPU is not within 0..65535"),
        ([(0, 65536, 0, 0)], "core 65536 of a CPU is not within 0..65535"),
        ([(0, 0, -1, 0)], "socket -1 of a CPU is not within 0..65535"),
        ([(0, 0, 1 << 80, 0)], f"socket {1 << 80} of a CPU is not within 0..65535"),
        ([(0, 0, 0, -1)], "NUMA node -1 of a CPU is not within 0..63"),
        ([(0, 0, 0, 64)], "NUMA node 64 of a CPU is not within 0..63"),
    ],
)
def test_what_no_machine_has_is_refused(cpus, message):
    with pytest.raises(ValueError, match=f"^CPU topology: {message}$"):
        CPUTopology(cpus)


@pytest.mark.parametrize("seed", range(200))
def test_tables_say_what_the_cpus_say(seed):
    rng = random.Random(seed)
    cpus = random_machine(rng)
    t = CPUTopology(rng.sample(cpus, len(cpus)))
    core_of = {cpu: (socket, core) for cpu, core, socket, _ in cpus}
    free = {cpu for cpu in core_of if rng.random() < 0.7}
    assert cpuset.ids(t.cpus) == sorted(core_of)
    assert t.order.tolist() == [cpu for *_, cpu in sorted((n, s, c, cpu) for cpu, c, s, n in cpus)]
    assert [set(cpuset.ids(core)) for core in t.cores] == [
        {cpu for cpu in core_of if core_of[cpu] == core} for core in sorted(set(core_of.values()))
    ]
    assert all(t.cores[t.core_rank[cpu]] >> cpu & 1 for cpu in core_of)
    assert t.core_rank.count(-1) == len(t.core_rank) - len(cpus)
    assert t.node_cpus == {node: cpuset.of(cpu for cpu, _, _, n in cpus if n == node) for node in {n for *_, n in cpus}}
    of_core = {core: sorted(cpu for cpu in free if core_of[cpu] == core) for core in map(core_of.get, free)}
    assert t.one_per_core(cpuset.of(free)) == cpuset.of(core[0] for core in of_core.values())
    full = [core for core in of_core.values() if len(core) == len(cpus) // len(set(core_of.values()))]
    assert t.full_cores(cpuset.of(free)) == cpuset.of(cpu for core in full for cpu in core)
    assert t.whole_cores(cpuset.of(free)) == cpuset.of(cpu for cpu in core_of if core_of[cpu] in of_core)
