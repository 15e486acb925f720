"""What `explain` says of a pod that its quota refuses."""

import msgspec

from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World


def test_refusal_in_detail():
    world = World(node("n", cpu=20, memory="20Gi"))
    for name, least in (("mine", 2), ("theirs", 4)):
        world.put(quota(name, {"cpu": 20, "memory": "20Gi"}, {"cpu": least, "memory": "2Gi"}))
    world.put(pod("small", {"cpu": 2, "memory": "1Gi"}, "mine", on="n"))
    world.put(pod("large", {"cpu": 5, "memory": "1Gi"}, "mine", on="n"))
    world.put(pod("other", {"cpu": 11, "memory": "1Gi"}, "theirs", on="n"))
    new = pod("new", {"cpu": 6, "memory": "1Gi"}, "mine")
    world.put(new)
    explanation = world.explain(new)
    assert explanation.rejected_by == "ElasticQuota"
    assert msgspec.to_builtins(explanation.refusal) == {
        "quota": "mine",
        "tree": "",
        "podsQuota": "mine",
        "bound": "runtime",
        "dimensions": [
            {
                "resource": "cpu",
                "limit": "9",
                "used": "7",
                "requested": "6",
                "missing": "4",
                "heldBy": [{"name": "default/large", "amount": "5"}, {"name": "default/small", "amount": "2"}],
                "lentTo": [{"name": "theirs", "amount": "7"}],
            }
        ],
    }


def test_refusal_by_a_parent():
    args = {"enableRuntimeQuota": False, "enableCheckParentQuota": True}
    world = World(node("n", cpu=20), quota("top", {"cpu": 4}, is_parent="true"), args=args)
    world.put(quota("mine", {"cpu": 4}, parent="top"))
    world.put(quota("other", {"cpu": 4}, parent="top"))
    world.put(pod("o", {"cpu": 3}, "other", on="n"))
    new = pod("new", {"cpu": 2}, "mine")
    world.put(new)
    refusal = world.explain(new).refusal
    assert (refusal.quota, refusal.pods_quota, refusal.bound) == ("top", "mine", "max")
    (dimension,) = refusal.dimensions
    assert (dimension.missing, dimension.held_by[0].name, dimension.lent_to) == ("1", "other", [])


def test_pod_that_fits_has_none():
    world = World(node("n", cpu=20), quota("mine", {"cpu": 4}))
    new = pod("new", {"cpu": 2}, "mine")
    world.put(new)
    explanation = world.explain(new)
    assert (explanation.rejected_by, explanation.refusal, explanation.any_of) == ("", None, ["n"])
