"""What the plugins keep in step with the cluster equals what they would make of it from scratch."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.framework.interface import CycleState
from koordsched.plugins import KINDS
from koordsched.plugins.nodevolumelimits.attached import AttachedVolumes
from koordsched.plugins.volumebinding.plugin import VolumeBooks
from koordsched.plugins.volumerestrictions.disks import DisksInUse
from koordsched.plugins.volumerestrictions.plugin import ClaimsInUse
from tests.plugins.harness import Bench
from tests.reference.plugins import REGISTRY
from tests.reference.randomvolumes import RandomVolumes
from tests.reference.world import World

seeds = st.integers(min_value=0, max_value=2**32 - 1)
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class History:
    """A cluster that changes: `objects` is what is there now, `bench` has lived through it all."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.state = RandomVolumes(self.rng, 4)
        self.bench = Bench()
        self.objects = {}
        self.attached = self.bench.cluster.shared(AttachedVolumes)
        self.claims_in_use = self.bench.cluster.shared(ClaimsInUse)
        self.disks_in_use = self.bench.cluster.shared(DisksInUse)
        self.binding = self.bench.plugin("VolumeBinding")
        self.numbers = iter(range(1, 10_000))

    def put(self, item):
        key = (item["kind"], item["metadata"]["name"])
        if item["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
            item["metadata"]["resourceVersion"] = str(next(self.numbers) + 100)
        self.objects[key] = item
        self.bench.add(item)

    def remove(self, key):
        item = self.objects.pop(key)
        cluster, meta = self.bench.cluster, item["metadata"]
        if key[0] == "Node":
            cluster.remove_node(meta["name"])
        elif key[0] == "Pod":
            cluster.remove_pod(meta["uid"])
        else:
            store = cluster.objects.of(KINDS[item["apiVersion"], item["kind"]])
            store.delete(meta.get("namespace", ""), meta["name"])

    def step(self):
        """Something appears, changes or goes."""
        rng, state = self.rng, self.state
        choice = rng.random()
        if choice < 0.3 or not self.objects:
            missing = [o for o in state.objects if (o["kind"], o["metadata"]["name"]) not in self.objects]
            if missing:
                self.put(rng.choice(missing))
        elif choice < 0.5:
            number = next(self.numbers)
            self.put(state.pod(f"e{number}", on=rng.choice(state.node_names)))
        elif choice < 0.6:
            self.put(state.attachment(rng.randrange(4)))
        elif choice < 0.75:
            volumes = [o for (kind, _), o in self.objects.items() if kind == "PersistentVolume"]
            if volumes:
                old = rng.choice(volumes)
                phase = rng.choice(["Available", "Bound", "Released"])
                spec = {key: value for key, value in old["spec"].items() if key != "claimRef" or rng.random() < 0.5}
                self.put({**old, "metadata": dict(old["metadata"]), "spec": spec, "status": {"phase": phase}})
        elif choice < 0.85:
            claims = [o for (kind, _), o in self.objects.items() if kind == "PersistentVolumeClaim"]
            if claims:
                old = rng.choice(claims)
                names = [name for kind, name in self.objects if kind == "PersistentVolume"]
                spec = {key: value for key, value in old["spec"].items() if key != "volumeName"}
                if names and rng.random() < 0.7:
                    spec["volumeName"] = rng.choice(names)
                self.put({**old, "metadata": dict(old["metadata"]), "spec": spec})
        elif choice < 0.92:
            self.put(state.node(rng.choice(state.node_names)))
        else:
            self.remove(rng.choice(list(self.objects)))

    def rebuilt(self):
        """A bench that has only seen how it ended."""
        fresh = Bench()
        order = list(self.objects.values())
        self.rng.shuffle(order)
        for item in order:
            fresh.add(item)
        return fresh


def columns(cluster, attached):
    """{(node, driver): (count, limit)}."""
    return {
        (node, name): (int(driver.count.data[row]), int(driver.limit.data[row]))
        for name, driver in attached._drivers.items()
        for node, row in cluster.table.row_of.items()
        if driver.count.data[row] or driver.limit.data[row] < 1 << 40
    }


@unhurried
@given(seed=seeds)
def test_books_equal_a_rebuild(seed):
    history = History(seed)
    for _ in range(60):
        history.step()
    fresh = history.rebuilt()
    was, now = history.bench.cluster, fresh.cluster
    assert columns(was, history.attached) == columns(now, now.shared(AttachedVolumes))
    assert history.claims_in_use._users == now.shared(ClaimsInUse)._users
    assert was.shared(VolumeBooks).volumes._prebound == now.shared(VolumeBooks).volumes._prebound
    mounted = {
        (disk, was.table.names[row]): users
        for disk, rows in history.disks_in_use._rows.items()
        for row, users in rows.items()
    }
    assert mounted == {
        (disk, now.table.names[row]): users
        for disk, rows in now.shared(DisksInUse)._rows.items()
        for row, users in rows.items()
    }


@unhurried
@given(seed=seeds)
def test_binding_follows_every_change(seed):
    """The same plugin, asked between changes, always answers as the reference does on the state of the moment."""
    history = History(seed)
    naive = REGISTRY["VolumeBinding"]({})
    for _ in range(25):
        for _ in range(4):
            history.step()
        wanted = history.state.pod("p")
        for item in history.state.objects:
            if item["kind"] == "PersistentVolumeClaim" and history.rng.random() < 0.8:
                history.put(item)
        world = World(history.objects.values())
        waiting = history.bench.pod(wanted)
        if (
            naive.pre_filter(wanted, world) is not None
            or not history.binding.pre_filter(CycleState(waiting), waiting).ok
        ):
            continue
        expected = {n["metadata"]["name"]: naive.filter(wanted, n, world) for n in world.nodes}
        found = history.bench.filter(history.binding, wanted)
        assert found == {name: verdict and (verdict.code, *verdict.reasons) for name, verdict in expected.items()}


def test_what_ifs_leave_the_books_as_they_were():
    history = History(5)
    for _ in range(120):
        history.step()
    cluster = history.bench.cluster
    before = columns(cluster, history.attached)
    rows = [row for row in cluster.table.row_of.values() if cluster.pods_on(row)]
    assert rows
    with cluster.what_if() as hypothesis:
        for row in rows:
            for other in list(cluster.pods_on(row).values()):
                hypothesis.remove(other, row)
        used = {name: driver.count.data.copy() for name, driver in history.attached._drivers.items()}
        attached = {}
        for (kind, _), item in history.objects.items():
            if kind == "VolumeAttachment":
                attached.setdefault(item["spec"]["nodeName"], 0)
                attached[item["spec"]["nodeName"]] += 1
        for node, row in cluster.table.row_of.items():
            assert sum(int(counts[row]) for counts in used.values()) <= attached.get(node, 0)
    assert columns(cluster, history.attached) == before
