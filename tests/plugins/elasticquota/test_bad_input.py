"""Quotas that users get wrong: said where they look, and nothing else is affected."""

import pytest

from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World, amounts

GOOD = {"cpu": 10}
ROOT = "koordinator-root-quota"


def validation_errors(world, name="bad", namespace="quotas"):
    """What is said of an object."""
    return world.books.validation_errors().get((namespace, name), ())


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (quota("bad", {"cpu": "ten"}), ["spec.max: cpu: quantity 'ten' must match", "counts as 0"]),
        (quota("bad", {"cpu": "-1"}), ["spec.max: cpu: -1 is negative, and counts as 0"]),
        (quota("bad", GOOD, {"cpu": 20}), ["spec.min: cpu 20 is more than max 10, and counts as that"]),
        (quota("bad", GOOD, {"memory": 1}), ["spec.min: memory is not in spec.max"]),
        (quota("bad", GOOD, weight="{"), ["shared-weight cannot be read and is ignored"]),
        (quota("bad", GOOD, weight='{"cpu": "x"}'), ["shared-weight cannot be read and is ignored: cpu"]),
        (quota("bad", GOOD, weight="[]"), ["shared-weight cannot be read and is ignored: not a JSON object"]),
        (quota("bad", GOOD, namespaces='{"a": 1}'), ["namespaces cannot be read and is ignored: not a JSON array"]),
        (quota("bad", GOOD, parent="gone"), [f"parent gone does not exist: treated as a child of {ROOT}"]),
        (quota("bad", GOOD, parent="bad"), [f"its chain of parents leads back to it: treated as a child of {ROOT}"]),
        (
            quota("bad", GOOD, parent="koordinator-default-quota"),
            ["parent koordinator-default-quota cannot have children"],
        ),
        (quota("bad", GOOD, parent="good"), ["parent good is not declared as one (label is-parent)"]),
    ],
)
def test_what_is_wrong_is_said_and_the_others_go_on(thing, expected):
    world = World(node("n", cpu=100), quota("good", GOOD, GOOD), thing)
    found = validation_errors(world)
    assert len(found) == 1
    for text in expected:
        assert text in found[0]
    assert set(world.books.validation_errors()) == {("quotas", "bad")}
    new = pod("new", {"cpu": 4}, "good")
    world.put(new)
    assert world.refusal(new) is None
    world.put(quota("bad", GOOD))
    assert world.books.validation_errors() == {}


def test_no_pod_is_in_the_root_whatever_its_annotation_says():
    """Nor in what its name leads to, while the default and the system quota may have namespaces."""
    world = World(node("n", cpu=100))
    for name in (ROOT, "koordinator-default-quota", "koordinator-system-quota"):
        world.put(quota(name, GOOD, namespaces='["team-a", "team-b"]'))
    assert validation_errors(world, ROOT) == (
        f"annotation quota.scheduling.koordinator.sh/namespaces is ignored: no pods can be in {ROOT}",
    )
    new = pod("new", {"cpu": 4}, namespace="team-a")
    world.put(new)
    assert world.books.member(new["metadata"]["uid"]).quota.name == "koordinator-default-quota"
    assert world.refusal(new) is None
    world.put(quota(ROOT, {}, namespaces='["team-a"]'))
    world.remove(quota("koordinator-default-quota", GOOD))
    world.remove(quota("koordinator-system-quota", GOOD))
    assert world.refusal(new) is None


def test_trees():
    world = World(node("n", cpu=100), gates=("MultiQuotaTree",))
    world.put(quota("east", GOOD, tree_id="e", is_root="true", is_parent="true", total_resource='{"cpu": "ten"}'))
    assert [
        "total-resource cannot be read" in validation_errors(world, "east")[0],
        len(validation_errors(world, "east")),
    ] == [
        True,
        2,
    ]
    world.put(quota("west", GOOD, tree_id="e", is_root="true", is_parent="true", total_resource={"cpu": "5"}))
    assert validation_errors(world, "west") == ("tree e has another root, east, whose total counts",)
    world.put(quota("lost", GOOD, parent="east"))
    assert validation_errors(world, "lost") == (
        f"parent east is in another quota tree ('e', not ''): treated as a child of {ROOT}",
    )
    assert world.quota("lost").parent is world.books.trees.default_tree.root


def test_cycle_of_three_keeps_what_hangs_below():
    world = World(node("n", cpu=100))
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("leaf", "b")):
        world.put(quota(name, GOOD, parent=parent, is_parent="true"))
    assert [world.quota(name).parent.name for name in ("a", "b", "c", "leaf")] == [ROOT, ROOT, ROOT, "b"]
    world.put(pod("p", {"cpu": 3}, "leaf", on="n"))
    world.put(quota("c", GOOD, is_parent="true"))
    assert [world.quota(name).parent.name for name in ("a", "b", "c", "leaf")] == ["b", "c", ROOT, "b"]
    assert world.quota("c").used == amounts(cpu=3)
    assert world.books.validation_errors() == {}


def test_one_name_in_two_namespaces():
    first = quota("q", {"cpu": 4}, namespace="z", created="2026-01-01T00:00:00Z")
    second = quota("q", {"cpu": 8}, namespace="a", created="2026-01-02T00:00:00Z")
    for order in ((first, second), (second, first)):
        world = World(node("n", cpu=100), *order)
        assert world.quota("q").max == amounts(cpu=4)
        assert validation_errors(world, "q", "a") == (
            "a quota of this name is in namespace z already; that one counts",
        )
        assert validation_errors(world, "q", "z") == ()
        world.remove(first)
        assert world.quota("q").max == amounts(cpu=8)
        assert world.books.validation_errors() == {}


def test_quota_deleted_while_pods_use_it():
    world = World(node("n", cpu=100), quota("q", GOOD))
    world.put(pod("running", {"cpu": 3}, "q", on="n"))
    waiting = pod("waiting", {"cpu": 30}, "q")
    world.put(waiting)
    assert world.refusal(waiting) is not None
    world.remove(quota("q", GOOD))
    assert world.refusal(waiting) is None
    assert world.quota("koordinator-default-quota").used == amounts(cpu=3)
    assert world.books.unknown_names() == {"q": 2}
    world.put(quota("q", GOOD))
    assert world.quota("q").used == amounts(cpu=3)
    assert world.refusal(waiting) is not None


def test_quota_on_its_way_out_counts_no_more():
    world = World(node("n", cpu=100), quota("q", GOOD))
    going = quota("q", GOOD)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(going)
    assert world.quota("q") is None


def test_quota_that_allows_nothing_to_be_read_refuses_with_a_reason():
    world = World(node("n", cpu=100), quota("bad", {"cpu": "ten"}))
    new = pod("new", {"cpu": 1}, "bad")
    world.put(new)
    assert world.refusal(new).endswith("runtime: cpu:0, used: <empty>, pod's request: cpu:1, exceedDimensions: [cpu]")


def test_default_quota_switched_off():
    world = World(node("n", cpu=100), quota("q", GOOD, namespaces=["default"]), gates=("DisableDefaultQuota",))
    for thing, name in (
        (pod("a", {"cpu": 50}), None),
        (pod("b", {"cpu": 50}, "x"), None),
        (pod("c", {"cpu": 5}, "q"), "q"),
    ):
        world.put(thing)
        found = world.books.quota_of(world.pod(thing))
        assert (found.name if found is not None else None) == name
        assert world.refusal(thing) is None or name is None
