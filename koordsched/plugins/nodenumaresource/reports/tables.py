"""CPUs and NUMA nodes on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordsched.framework.declaration import Detail, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.nodenumaresource.explanation import amount_text
from koordsched.plugins.nodenumaresource.reports.pages import NODE, NODES
from koordsched.plugins.nodenumaresource.reports.report import (
    CONFLICT,
    CoreReport,
    NodeReport,
    NUMANodeReport,
    Overview,
    PodReport,
    overview,
    report_on,
)
from koordsched.plugins.shared import cpuset

_Pattern = tuple[tuple[str, bool, tuple[str, ...]], ...]
"""(state, reserved, pods) of each CPU of a core."""


def overview_tables(shown: Overview) -> Iterator[Line | Table]:
    """A line per node, then what is wrong with nodes."""
    rows = [
        (
            node.node,
            node.report,
            node.bind_policy or "-",
            node.numa_topology_policy or "-",
            f"{node.free_cpus}/{node.cpus}" if node.cpus else "-",
            f"{node.free_cores}/{node.cores}" if node.cores else "-",
            " ".join(f"{amount_text('cpu', zone.left)}/{amount_text('cpu', zone.has)}" for zone in node.numa_nodes)
            or "-",
            f"{_counted(node.conflicts, 'CPU')} in CONFLICT" if node.conflicts else "",
        )
        for node in shown.nodes
    ]
    header = ("NODE", "REPORT", "BIND POLICY", "NUMA POLICY", "FREE CPUS", "FREE CORES", "CPU LEFT BY NUMA NODE", "")
    yield Table(header, rows, numbers=("FREE CPUS", "FREE CORES"))
    for node in shown.nodes:
        for problem in node.problems:
            yield Line(f"{node.node}: {problem}")


def tables(shown: NodeReport) -> Iterator[Line | Table]:
    """The policies and problems; the NUMA nodes; their cores, identical ones in one line; the pods."""
    yield from _head(shown)
    if shown.numa_nodes:
        yield Line("")
        yield _numa_nodes(shown.numa_nodes)
    if shown.cores:
        yield Line("")
        yield _cores(shown)
    if shown.pods:
        yield Line("")
        rows = [
            (pod.pod, pod.cpus or "-", pod.bind_policy or "-", pod.exclusive_policy or "-", _given(pod) or "-")
            for pod in shown.pods
        ]
        yield Table(("POD", "CPUS", "BIND POLICY", "EXCLUSIVE", "GIVEN BY NUMA NODES"), rows)


def _head(shown: NodeReport) -> Iterator[Line]:
    cores = {(core.socket, core.core) for core in shown.cores}
    cpus = [cpu for core in shown.cores for cpu in core.cpus]
    if cpus:
        sizes = (
            (len({core.socket for core in shown.cores}), "socket"),
            (len(shown.numa_nodes), "NUMA node"),
            (len(cores), "core"),
            (len(cpus), "CPU"),
        )
        yield Line(f"Node {shown.node}: {', '.join(_counted(*size) for size in sizes)}", bold=True)
        held = sum(bool(cpu.pods) for cpu in cpus)
        reserved = sum(cpu.reserved and not cpu.pods for cpu in cpus)
        whole = sum(numa.free_cores for numa in shown.numa_nodes)
        free = f"{_counted(len(cpus) - held - reserved, 'CPU')} free, with {_counted(whole, 'whole core')}"
        yield Line(f"{free}; {held} held by pods, {reserved} reserved")
    else:
        reported = "no NodeResourceTopology" if shown.report in ("none", "missing") else "its CPUs are not known"
        yield Line(f"Node {shown.node}: {reported}", bold=True)
    policies = (
        f"bind policy {shown.bind_policy or 'none'}",
        f"NUMA topology policy {shown.numa_topology_policy or 'none'}",
        f"allocate strategy {shown.allocate_strategy}",
        *(f"{name} amplified {ratio:g} times" for name, ratio in shown.amplification_ratios.items()),
    )
    yield Line(", ".join(policies))
    for conflict in shown.conflicts:
        twice = f"CPU {conflict.cpus} is held" if conflict.cpus.isdigit() else f"CPUs {conflict.cpus} are held"
        yield Line(f"CONFLICT: {twice} by {' and '.join(conflict.pods)}", bold=True)
    for problem in shown.problems:
        yield Line(f"Problem: {problem}")


def _numa_nodes(shown: list[NUMANodeReport]) -> Table:
    rows: list[tuple[str, ...]] = []
    for numa in shown:
        place = (
            str(numa.numa_node),
            ",".join(map(str, numa.sockets)) or "-",
            numa.cpus or "-",
            numa.free or "-",
            f"{numa.free_cores}/{numa.cores}" if numa.cores else "-",
        )
        lines = [
            (line.resource, *(amount_text(line.resource, amount) for amount in (line.has, line.given, line.left)))
            for line in numa.resources
            if line.has or line.given or line.resource in ("cpu", "memory")
        ] or [("-", "", "", "")]
        rows += [((*place, *line) if not number else ("",) * len(place) + line) for number, line in enumerate(lines)]
    figures = "HAS", "GIVEN", "LEFT"
    header = ("NUMA NODE", "SOCKET", "CPUS", "FREE CPUS", "FREE CORES", "RESOURCE", *figures)
    return Table(header, rows, numbers=("NUMA NODE", "SOCKET", "FREE CORES", *figures))


def _cores(shown: NodeReport) -> Table:
    """The cores of a NUMA node that have the same pods are one line, or one for each part of them."""
    exclusive = {pod.pod: pod.exclusive_policy for pod in shown.pods}
    rows: list[tuple[str, ...]] = []
    before: tuple[str, str] | None = None
    for (socket, numa, pattern), cores in _alike(shown.cores).items():
        place: tuple[str, ...] = (str(socket), str(numa))
        if place == before:
            place = ("", "")
        else:
            before = str(socket), str(numa)
        ids = cpuset.text(cpuset.of(core.core for core in cores))
        for state, reserved, pods in dict.fromkeys(pattern):
            cpus = cpuset.of(
                cpu.cpu
                for core in cores
                for cpu in core.cpus
                if (cpu.state, cpu.reserved, tuple(cpu.pods)) == (state, reserved, pods)
            )
            said = state.upper() if state == CONFLICT else state
            if reserved and pods:
                said += ", reserved"
            names = (f"{pod} ({policy})" if (policy := exclusive.get(pod)) else pod for pod in pods)
            rows.append((*place, ids, cpuset.text(cpus), said, " and ".join(names)))
            place, ids = ("", ""), ""
    return Table(("SOCKET", "NUMA NODE", "CORES", "CPUS", "STATE", "PODS"), rows, numbers=("SOCKET", "NUMA NODE"))


def _alike(cores: Iterable[CoreReport]) -> dict[tuple[int, int, _Pattern], list[CoreReport]]:
    found: dict[tuple[int, int, _Pattern], list[CoreReport]] = {}
    for core in cores:
        pattern = tuple((cpu.state, cpu.reserved, tuple(cpu.pods)) for cpu in core.cpus)
        found.setdefault((core.socket, core.numa_node, pattern), []).append(core)
    return found


def _given(pod: PodReport) -> str:
    return "; ".join(
        f"{numa.numa_node}: {', '.join(f'{name} {amount_text(name, amount)}' for name, amount in numa.amounts.items())}"
        for numa in pod.numa_nodes
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


VIEW = View(
    group="numa",
    group_help="Show CPUs and NUMA nodes.",
    name="",
    help="""Show which pods have the CPUs of a node, by socket, NUMA node and core, and what its NUMA nodes have left.

    Without NODE: one line per node, with its policies, the CPUs and whole cores that are free, and the CPU that each of
    its NUMA nodes has left.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on NUMA nodes",
    page=NODES,
    type=Overview,
    report=overview,
    show=overview_tables,
    detail=Detail("NODE", "a report on the CPUs of a node", NODE, NodeReport, report_on, tables),
)
