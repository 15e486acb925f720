"""Two pods that share a claim which is not bound yet: what is promised to one holds for the other, whoever gives up."""

import pytest

from koordsched.framework.interface import CycleState
from tests.plugins.harness import Bench
from tests.plugins.states import carry_over
from tests.plugins.volumes.objects import HOSTNAME, LOCAL, claim, node, pod, storage_class, volume

STATIC = (
    LOCAL,
    claim("c", class_name="local"),
    *(volume(f"v{i}", class_name="local", at={HOSTNAME: [f"n{i}"]}) for i in (1, 2)),
)
DYNAMIC = (storage_class(), claim("c"))


class Two:
    """Pods of one claim, each decided for on its own."""

    def __init__(self, objects):
        self.bench = Bench(node("n1"), node("n2"), *objects)
        self.plugin = self.bench.plugin("VolumeBinding")

    def choose(self, name, on):
        """Reserves a node for a pod; returns what takes it back, or None if the plugin refuses the node."""
        waiting = self.bench.pod(pod(name, "c"))
        cycle, table = CycleState(waiting), self.bench.cluster.table
        assert self.plugin.pre_filter(cycle, waiting).ok
        row = table.row_of[on]
        codes = self.plugin.filter(cycle, waiting, table, self.bench.rows)
        if codes is not None and codes[self.bench.rows.tolist().index(row)]:
            return None
        assert self.plugin.reserve(cycle, waiting, row).ok
        return lambda: self.plugin.unreserve(cycle, waiting, row)


@pytest.mark.parametrize("objects", [pytest.param(STATIC, id="free volumes"), pytest.param(DYNAMIC, id="provisioned")])
class TestSharing:
    def test_the_second_pod_goes_where_the_first_one_goes(self, objects):
        two = Two(objects)
        assert two.choose("a", on="n1")
        assert two.choose("b", on="n2") is None
        assert two.choose("b", on="n1")

    def test_a_pod_that_gives_up_leaves_the_promise_to_the_other(self, objects):
        two = Two(objects)
        assert two.choose("a", on="n1")
        give_up = two.choose("b", on="n1")
        give_up()
        assert two.choose("b", on="n2") is None

    def test_a_pod_alone_takes_its_promise_back(self, objects):
        two = Two(objects)
        give_up = two.choose("a", on="n1")
        give_up()
        assert two.choose("a", on="n2")

    def test_a_replay_from_a_checkpoint_knows_the_promise(self, objects):
        two, later = Two(objects), Two(objects)
        assert two.choose("a", on="n1")
        carry_over(two.bench.handle, later.bench.handle)
        assert later.choose("b", on="n2") is None
