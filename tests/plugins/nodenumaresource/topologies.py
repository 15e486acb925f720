"""Machines as topologies of CPUs."""

from koordsched.plugins.nodenumaresource.topology import CPUTopology


def cpus_of(sockets, nodes, cores, threads=2, linux=False):
    """(id, core, socket, NUMA node) of all CPUs, for `nodes` per socket, `cores` per NUMA node, `threads` per core.

    Siblings have neighbouring ids, or the ids of all second siblings follow those of all first ones, as Linux does.
    """
    every = sockets * nodes * cores
    return [
        (core + thread * every if linux else core * threads + thread, core, core // (nodes * cores), core // cores)
        for core in range(every)
        for thread in range(threads)
    ]


def machine(sockets, nodes, cores, threads=2, linux=False):
    return CPUTopology(cpus_of(sockets, nodes, cores, threads, linux))
