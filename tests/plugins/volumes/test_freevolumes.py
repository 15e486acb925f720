"""Free volumes handed out to several claims at once, against a look at every node and volume in turn."""

from random import Random

import pytest

from koordsched.api.decoding import convert
from koordsched.api.selectors import compile_selector
from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.cluster.builtinkinds import PERSISTENT_VOLUMES
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.volumebinding.assumed import Assumed
from koordsched.plugins.volumebinding.claims import Demand
from koordsched.plugins.volumebinding.freevolumes import FreeVolumes
from koordsched.plugins.volumebinding.offer import capacity_of
from tests.plugins.harness import Bench
from tests.plugins.volumes.objects import HOSTNAME, ZONE, claim, node, volume
from tests.reference.plugins.volumebinding import match
from tests.reference.quantity import parse
from tests.reference.world import World


def typed(item, kind):
    return convert(item, kind)


def demand(item):
    wanted = typed(item, PersistentVolumeClaim)
    selector = compile_selector(wanted.spec.selector) if wanted.spec.selector is not None else None
    return Demand(wanted, "late", int(parse(item["spec"]["resources"]["requests"]["storage"])), selector)


def random_volume(rng, number):
    at = rng.choice(
        [None, {HOSTNAME: [f"n{rng.randrange(12)}"]}, {HOSTNAME: ["n1", "n2"]}, {ZONE: ["a"]}, {ZONE: ["b", "c"]}]
    )
    labels = {"tier": "gold"} if rng.random() < 0.3 else {}
    mode = rng.choice(["Filesystem", "Filesystem", "Block"])
    return volume(f"v{number}", f"{rng.randint(1, 9)}Gi", at=at, labels=labels, volumeMode=mode)


def random_claims(rng):
    wanted = [
        claim(f"c{i}", f"{rng.randint(1, 9)}Gi", volumeMode=rng.choice(["Filesystem", "Filesystem", "Block"]))
        for i in range(rng.randint(1, 4))
    ]
    for item in wanted:
        if rng.random() < 0.2:
            item["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
    return sorted(wanted, key=lambda item: parse(item["spec"]["resources"]["requests"]["storage"]))


def expected_on(where, claims, volumes):
    """The sizes that the claims get on a node, None where there is nothing left."""
    world, taken, sizes = World(volumes), [], []
    for wanted in claims:
        found = match(wanted, where, world, taken)
        taken += [found] if found is not None else []
        sizes.append(None if found is None else int(parse(found["spec"]["capacity"]["storage"])))
    return sizes


@pytest.mark.parametrize("seed", range(12))
def test_volumes_come_and_go(seed):
    rng = Random(seed)
    nodes = [node(f"n{i}", rng.choice([None, "a", "b", "c"])) for i in range(10)]
    bench = Bench(*nodes)
    table = bench.cluster.table
    free = FreeVolumes(table, NodeSelectors())
    known = {}
    for step in range(12):
        for _ in range(rng.randint(1, 90)):
            number = rng.randrange(150)
            if f"v{number}" in known and rng.random() < 0.6:
                del known[f"v{number}"]
                free.drop(f"v{number}")
            else:
                made = known.get(f"v{number}") if rng.random() < 0.5 else None
                made = known[f"v{number}"] = made or random_volume(rng, number)
                thing = typed(made, PersistentVolume)
                free.put(thing, capacity_of(thing))
        if step % 3 == 2:
            gone = nodes.pop(rng.randrange(len(nodes)))
            bench.cluster.remove_node(gone["metadata"]["name"])
            absent = [f"n{i}" for i in range(12) if f"n{i}" not in table.row_of]
            moved = node(rng.choice(nodes)["metadata"]["name"], rng.choice(["a", "b", "c"]))
            nodes = [item for item in nodes if item["metadata"]["name"] != moved["metadata"]["name"]]
            nodes += [moved, node(rng.choice(absent), rng.choice(["a", "b", "c"]))]
            for item in nodes[-2:]:
                bench.add(item)
        assert len(free) == len(known)
        claims = random_claims(rng)
        assigned = free.assign([demand(item) for item in claims])
        for where in nodes:
            row = table.row_of[where["metadata"]["name"]]
            sizes = [capacity_of(found) if (found := one.on(row)) is not None else None for one in assigned]
            assert sizes == expected_on(where, claims, list(known.values()))
            names = [found.metadata.name for one in assigned if (found := one.on(row)) is not None]
            assert len(names) == len(set(names))
            assert [bool(one.found[row]) for one in assigned] == [size is not None for size in sizes]


def test_what_was_assigned_stays_what_it_was():
    bench = Bench(node("n"))
    free = FreeVolumes(bench.cluster.table, NodeSelectors())
    for number in range(200):
        thing = typed(volume(f"v{number}", f"{number + 1}Gi"), PersistentVolume)
        free.put(thing, capacity_of(thing))
    (assigned,) = free.assign([demand(claim("c", "100Gi"))])
    for number in range(199):
        free.drop(f"v{number}")  # the slots are laid out anew meanwhile
    assert assigned.on(0).metadata.name == "v99"
    (left,) = free.assign([demand(claim("c", "100Gi"))])
    assert left.on(0).metadata.name == "v199"


def test_an_assumption_ends_with_the_next_version():
    bench = Bench()
    store = bench.cluster.objects.of(PERSISTENT_VOLUMES)
    assumed = Assumed(store)
    seen = []
    assumed.subscribe(lambda old, new: seen.append((old and old.status.phase, new and new.status.phase)))

    def version(number, phase):
        made = volume("v", phase=phase)
        made["metadata"]["resourceVersion"] = str(number)
        return typed(made, PersistentVolume)

    store.upsert(version(1, "Available"))
    ours = version(1, "assumed")
    assumed.assume(ours)
    assert assumed.get("", "v") is ours
    store.upsert(version(1, "Available"))  # the same version listed once more
    assert assumed.get("", "v") is ours
    assumed.restore(version(1, "assumed"))  # another assumption, of which we know nothing
    assert assumed.get("", "v") is ours
    store.upsert(version(2, "Bound"))
    assert assumed.get("", "v").status.phase == "Bound"
    assumed.restore(ours)
    assert assumed.get("", "v").status.phase == "Bound"
    again = version(2, "assumed")
    assumed.assume(again)
    assumed.restore(again)
    assert assumed.get("", "v").status.phase == "Bound"
    assumed.assume(again)
    store.delete("", "v")
    assert assumed.get("", "v") is None
    assert seen == [
        (None, "Available"),
        ("Available", "assumed"),
        ("assumed", "Bound"),
        ("Bound", "assumed"),
        ("assumed", "Bound"),
        ("Bound", "assumed"),
        ("assumed", None),
    ]
