"""Everything that an offline scheduler believes, as plain values, to be compared before and after."""

import msgspec
import numpy as np


def everything(scheduler):
    """All tables, orders, nominations and answers of plugins; the change log and serial numbers only go on."""
    cluster, table, nominator = scheduler.cluster, scheduler.cluster.table, scheduler.nominator
    return {
        "columns": [_amounts(column.data, table.size) for column in table._columns],
        "ports": {key: {ip: dict(rows) for ip, rows in by_ip.items()} for key, by_ip in table.ports._used.items()},
        "rows": [list(cluster.pods_on(row)) for row in range(table.size)],
        "assigned": [(uid, pod.node, pod.row, pod.facts) for uid, pod in cluster.assigned.items()],
        "assumed": list(cluster.assumed),
        "pending": [(pod.key, pod.node, pod.row, pod.facts) for pod in scheduler.pending.values()],
        "nominations": {
            node: [pod.uid for pod in nominator.nominated_on(node)] for node in nominator.nodes_with_nominated()
        },
        "explanations": {key: msgspec.to_builtins(scheduler.explain(key)) for key in scheduler.pending},
    }


def by_node(scheduler, books):
    """What is counted against each node, by its name: equal for any order in which the same objects came."""
    table = scheduler.cluster.table
    names = table.resource_names.names
    return {
        name: (
            {names[i]: int(c.data[row]) for i, c in enumerate(table.requested) if c.data[row]},
            [int(column.data[row]) for column in table.requested_nonzero],
            int(table.pods_count.data[row]),
            books.state.data[row].tolist(),
            sorted(scheduler.cluster.pods_on(row)),
        )
        for name, row in table.row_of.items()
    }


def _amounts(data, size):
    if isinstance(data, np.ndarray):
        return data.tobytes()
    return {row: int(data[row]) for row in range(size) if data[row]}
