"""After a relist nothing is believed of an object whose name belongs to another one by now, which cannot be read."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.client.sink import ObjectKey
from koordsched.cluster.state import ClusterState
from koordsched.scheduling.handlers import NodeHandler
from koordsched.scheduling.offline import OTHER_KINDS
from koordsched.scheduling.watching import NodeSink, ObjectSink
from tests.plugins.objects import node


class Moves:
    """What would move waiting pods."""

    def __init__(self):
        self.labels = []

    def move_all(self, event, old, new):
        self.labels.append(event.label)


def node_of(name, uid):
    item = node(name)
    item["metadata"]["uid"] = uid
    return convert(item, core.Node)


CASES = (
    ("the same", [ObjectKey("", "a", "1"), ObjectKey("", "b", "2")], ["a", "b"]),
    ("one is gone", [ObjectKey("", "a", "1")], ["a"]),
    ("another one has its name", [ObjectKey("", "a", "3"), ObjectKey("", "b", "2")], ["b"]),
)


@pytest.mark.parametrize(("present", "left"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_nodes(present, left):
    cluster, moves = ClusterState(), Moves()
    sink = NodeSink(NodeHandler(cluster, moves, None))
    sink.upsert(node_of("a", "1"))
    sink.upsert(node_of("b", "2"))
    moves.labels.clear()
    sink.replace_begin()
    sink.replace_end(set(present))
    assert sorted(cluster.table.row_of) == left
    assert moves.labels == ["NodeDelete"] * (2 - len(left))


@pytest.mark.parametrize(("present", "left"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_other_objects(present, left):
    cluster, moves = ClusterState(), Moves()
    kind = OTHER_KINDS["storage.k8s.io/v1", "StorageClass"]
    store = cluster.objects.of(kind)
    sink = ObjectSink(store, moves)
    for name, uid in (("a", "1"), ("b", "2")):
        item = {"metadata": {"name": name, "uid": uid}, "provisioner": "example.com/disks"}
        sink.upsert(convert(item, kind.type))
    sink.replace_begin()
    sink.replace_end(set(present))
    assert sorted(obj.metadata.name for obj in store) == left
