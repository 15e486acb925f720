"""Gangs on the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from koordsched.config.duration import Duration
from koordsched.framework.declaration import Detail, View
from koordsched.framework.display import Line, Table
from koordsched.plugins.coscheduling.reports.pages import ALL, ONE
from koordsched.plugins.coscheduling.reports.report import GangLine, GangReport, Overview, overview, report_on
from koordsched.plugins.coscheduling.topology.picture import lines


def overview_tables(shown: Overview) -> Iterator[Line | Table]:
    """A line per gang, then why some are not tried."""
    yield _table(shown.gangs)
    for line in shown.gangs:
        if line.problem:
            yield Line(f"{line.gang}: {line.problem}")


def tables(shown: GangReport) -> Iterator[Line | Table]:
    """The gang, its group, and its members."""
    line = shown.gang
    said = [f"Gang {line.gang}", line.state]
    if line.origin:
        by = "its PodGroup" if line.origin == "GangFromPodGroupCrd" else "its pods"
        said += [f"at least {line.minimum} of {shown.total}", line.mode, line.match_policy, f"defined by {by}"]
        said.append(f"members wait {Duration.of(shown.waits_for)} for each other")
    yield Line(", ".join(said))
    if line.problem:
        yield Line(line.problem)
    if shown.topology_spec:
        yield Line(f"network topology: {shown.topology_spec}")
    if len(line.group) > 1:
        yield Line("")
        yield Line(f"placed together with {', '.join(each for each in line.group if each != line.gang)}")
        yield _table(shown.others)
    yield Line("")
    yield Table(("MEMBER", "STATE", "NODE"), [(each.pod, each.state, each.node or "-") for each in shown.members])
    if shown.network is not None:
        yield Line("")
        yield Line("What the network has to offer the pending members:")
        yield from (Line(f"  {text}") for text in lines(shown.network))
    reasons = Counter(each.reason for each in shown.members if each.reason)
    for reason, count in sorted(reasons.items(), key=lambda item: (item[1], item[0])):
        yield Line("")
        yield Line(f"{count} of the members {'read' if count > 1 else 'reads'}: {reason}")


def _table(lines: Iterable[GangLine]) -> Table:
    header = ("GANG", "STATE", "MIN", "MEMBERS", "PENDING", "PLACED", "BOUND", "MODE", "POLICY")
    rows = [
        (
            line.gang,
            line.state,
            str(line.minimum),
            str(line.members),
            str(line.pending),
            str(line.placed),
            str(line.bound),
            line.mode or "-",
            line.match_policy or "-",
        )
        for line in lines
    ]
    return Table(header, rows, numbers=("MIN", "MEMBERS", "PENDING", "PLACED", "BOUND"))


_READS = "Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live)."

VIEWS = (
    View(
        group="gang",
        group_help="Show gangs.",
        name="list",
        help=f"""Show which gangs there are, how many members they have, and what they wait for.

        {_READS}
        """,
        title="a report on gangs",
        page=ALL,
        type=Overview,
        report=overview,
        show=overview_tables,
    ),
    View(
        group="gang",
        group_help="Show gangs.",
        name="show",
        help=f"""Show a gang with its members; without a name, all gangs.

        {_READS}
        """,
        title="a report on gangs",
        page=ALL,
        type=Overview,
        report=overview,
        show=overview_tables,
        detail=Detail("NAMESPACE/NAME", "a report on a gang", ONE, GangReport, report_on, tables),
    ),
)
