"""Hostile values, and a cluster in which one node, or one pod, is full of them."""

from koordsched.scheduling.offline import BadObject
from tests.plugins.deviceshare.machines import bound, device, fpga, g8, gpu, nic, node, pod, used
from tests.plugins.deviceshare.naive.request import HINT, JOINT, PARTITION
from tests.plugins.deviceshare.world import World, key

NUMBERS = [
    -1,
    0,
    1,
    128,
    200,
    2**31,
    2**63,
    2**70,
    10**400,
    -(2**63),
    1.5,
    1e300,
    "1",
    "",
    "x",
    None,
    True,
    [],
    {},
    [[]],
]
QUANTITIES = [
    *("-5", "1e30", "-1e30", "10Ei", "1e999999999", "9" * 300, "many", "", " 1", "1e-30", "٣", "NaN", "Inf", "100%"),
    *(1.5, -3, 1e300, 2**70, 0, True, None, [], {}, "0"),
]
LARGE = 1_400_000
"""Bytes; an object may have a little more."""
TEXTS = [
    *("", "{", "[]", "{}", "7", '"x"', "null", "true", "[" * 100_000, '{"a":' * 50_000, "\0", "é\ud7ff", "NaN", "-0"),
    '{"gpu":null}',
    '{"gpu":{}}',
    '{"gpu":[]}',
    '{"gpu":[null]}',
    '{"gpu":[[]]}',
    '{"gpu":[{}]}',
    '{"":[{}],"é":[{}],"xpu":[{"minor":3}]}',
    '{"1":[{"minors":null}]}',
    '{"1":[{"minors":[]}]}',
    '{"0":[{"minors":[0]}]}',
    '{"1":{"minors":[0]}}',
    "[" + "1," * (LARGE // 2) + "1]",
    '"' + "x" * LARGE + '"',
    '{"' + "x" * LARGE + '":[]}',
    "{" + ",".join(f'"{at}":[]' for at in range(100_000)) + "}",
]

GOOD = (*g8("m2"), used(0, node="m2"), used(5, node="m2", share=50))
MACHINE = device(
    *(gpu(minor, place=(str(minor), minor // 2)) for minor in range(4)),
    *(nic(minor, (str(minor), minor // 2), functions=2) for minor in range(2)),
    fpga(0),
    name="m1",
)
ASKING = (
    pod("a", nvidia=1),
    pod("b", gpu=50),
    pod("c", memory=1 << 30),
    pod("d", nvidia=3, hints={"gpu": {"requiredTopologyScope": "NUMANode"}}),
    pod("e", nvidia=2, rdma=1, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}),
    pod("f", rdma=1, hints={"rdma": {"vfSelector": {}, "allocateStrategy": "ApplyForAll"}}),
    pod("g", nvidia=2, partition={}),
    pod("h", fpga=50, rdma=2, hints={"rdma": {"selector": {"matchLabels": {"type": "fast"}}}}),
    pod("i", cpu="1"),
)


class Watched(World):
    """With what is said in Events, and of annotations that cannot be read."""

    def __init__(self, *objects, **more):
        super().__init__(**more)
        self.said, self.complaints = [], []
        self.plugin.nodes._events.event = lambda kind, meta, level, reason, text, **more: self.said.append(
            (kind.plural, meta.name, reason, text)
        )
        self.cluster.pod_facts.on_malformed = lambda meta, problem: self.complaints.append((meta.name, problem))
        for thing in objects:
            self.put(thing)

    def takes(self, thing):
        """What is said of an object that cannot be read at all, None of one that can."""
        try:
            self.put(thing)
        except BadObject as error:
            return str(error)
        return None

    def scores(self, thing):
        """Node -> score of the plugin alone."""
        rows = slice(0, len(self.table.names))
        found = self.plugin.score_rows(self.pod(thing).shape, self.table, rows)
        return {name: int(found[row]) for name, row in self.table.row_of.items()}

    def answers(self, asking=ASKING):
        """Node name -> all that may be asked about it."""
        books = self.books()
        found = {name: [books[name]] for name in books}
        for thing in asking:
            verdicts, scores = self.verdicts(thing), self.scores(thing)
            for name, said in found.items():
                assert 0 <= scores[name] <= 300, (scores, thing)
                placed = self.place(thing, name, keep=False) if verdicts[name] == () else None
                said.append((verdicts[name], scores[name], placed))
            self.explain(thing)
            self.offline.pending.pop(key(thing))
        assert self.books() == books, "to ask changes nothing"
        return found


def cluster(*more, **options):
    """Two nodes, m1 and m2; m2 is as it should be."""
    return Watched(node("m1"), *GOOD, used(1, node="m1"), *more, **options)


def annotated(thing, text, annotation):
    """The same pod with an annotation."""
    annotations = {**thing["metadata"]["annotations"], annotation: text}
    return {**thing, "metadata": {**thing["metadata"], "annotations": annotations}}


def on_m1(name, text, annotation):
    """A pod on m1 with an annotation, which takes nothing else."""
    made = bound(pod(name), name, "m1")
    made["spec"]["containers"][0]["resources"] = {}
    return annotated(made, text, annotation)


OF_PODS = (HINT, JOINT, PARTITION)
"""Annotations by which pods ask for devices."""
