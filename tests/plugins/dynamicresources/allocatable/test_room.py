"""Which nodes are short of what devices may take of them."""

from koordsched.plugins.dynamicresources.allocatable.room import shortages
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod


def test_what_is_left_is_enough_to_the_last_unit():
    nodes = [("exact", "4", "1"), ("busy", "4", "1001m"), ("small", "2999m", "0"), ("idle", "3", "0")]
    bench = Bench(*(node(name, cpu=cpu) for name, cpu, _ in nodes))
    for name, _, used in nodes:
        bench.add(pod(f"on-{name}", container(cpu=used), on=name))
    asked = bench.pod(pod("p", container(cpu="3", memory="1Mi")))
    table = bench.cluster.table
    found = {
        table.names[row]: (final, lacking)
        for where, final, lacking in shortages(table, bench.rows, asked.requests)
        for row in bench.rows[where].tolist()
    }
    assert found == {"busy": (False, ["cpu"]), "small": (True, ["cpu"])}
