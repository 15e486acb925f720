"""At admission no quota uses more than it may, whatever is asked for and in whatever order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.elasticquota.arithmetic.amounts import fits
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World

QUOTAS = {
    "top": quota("top", {"cpu": 12, "x": 9}, {"cpu": 4}, is_parent="true"),
    "a": quota("a", {"cpu": 8, "x": 5}, {"cpu": 3, "x": 2}, parent="top"),
    "b": quota("b", {"cpu": 20}, {"cpu": 1}, parent="top", allow_lent_resource="false"),
    "c": quota("c", {"cpu": 20, "x": 4}, {"cpu": 6}, weight={"cpu": 3, "x": 1}),
    "koordinator-default-quota": None,
}
PODS = st.tuples(
    st.sampled_from([name for name in QUOTAS if name != "koordinator-default-quota"] + [None]),
    st.dictionaries(st.sampled_from(["cpu", "x"]), st.integers(0, 7), min_size=1),
    st.booleans(),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "try", "try", "try", "leave", "bound"]), st.integers(0, 9)), max_size=60
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(PODS, min_size=10, max_size=10),
    STEPS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), ("ElasticQuotaGuaranteeUsage",)]),
)
def test_no_quota_uses_more_than_it_may(pods, steps, by_runtime, checks_parents, gates):
    args = {
        "enableRuntimeQuota": by_runtime,
        "enableCheckParentQuota": checks_parents,
        "defaultQuotaGroupMax": {"cpu": 9, "x": 9},
    }
    world = World(node("n", cpu=20, x=10), *filter(None, QUOTAS.values()), args=args, gates=gates)
    row = world.cluster.table.row_of["n"]
    things = [
        pod(f"p{i}", request, name, preemptible=preemptible) for i, (name, request, preemptible) in enumerate(pods)
    ]
    asked, admitted = {}, {}
    for what, index in steps:
        thing = things[index]
        if what == "ask" and index not in asked:
            asked[index] = world.put(thing)
        elif what == "bound" and index not in asked:
            # Somebody else placed it, and asked nobody.
            asked[index] = admitted[index] = world.put({**thing, "spec": {**thing["spec"], "nodeName": "n"}})
        elif what == "leave" and index in asked:
            world.remove(thing)
            asked.pop(index)
            admitted.pop(index, None)
        elif what == "try" and index in asked and index not in admitted:
            own, admission = asked[index], world.plugin.admission
            at_once = admission.admits_at_once(own)
            refusal = admission.refusal(admission.claimant(own))
            assert refusal is None or not at_once
            assert world.refusal(thing) == (refusal.message if refusal is not None else None)
            if refusal is not None:
                continue
            world.cluster.assume(own, row)
            admitted[index] = own
            check(world, own, by_runtime=by_runtime, checks_parents=checks_parents)


def check(world, admitted, *, by_runtime, checks_parents):
    """The quota of a pod that was just admitted, and those above if they are looked at."""
    member = world.books.member(admitted.uid)
    limits = world.plugin.admission.limit_of
    assert fits(member.quota.used, {}, limits(member.quota))
    if member.non_preemptible:
        assert fits(member.quota.non_preemptible_used, {}, member.quota.min)
    if checks_parents:
        for above in member.quota.ancestors():
            used = {name: amount for name, amount in above.used.items() if name in member.counted}
            assert fits(used, {}, limits(above))
    if not by_runtime:
        assert fits(member.quota.used, {}, member.quota.max)


TOGETHER = [
    node("n", cpu=100),
    quota("top", {"cpu": 20}, is_parent="true"),
    quota("a", {"cpu": 8}, parent="top"),
    quota("b", {"cpu": 20}, parent="top"),
]
ELSEWHERE = pod("moved", {"cpu": 12}, on="n")


@pytest.mark.parametrize(
    "arrives",
    [
        pod("moved", {"cpu": 12}, "a", on="n"),
        quota("a", {"cpu": 8}, parent="top", namespaces=["default"]),
    ],
    ids=["the pod is relabelled", "its namespace is given to the quota"],
)
def test_what_a_pod_brings_to_another_quota_counts_at_once(arrives):
    """It uses 12 CPUs of which its new quota is granted 8: so that much less is left for the others of the parent."""
    world = World(*TOGETHER, ELSEWHERE, args={"enableCheckParentQuota": True})
    world.put(arrives)
    waits = pod("waits", {"cpu": 5}, "b")
    own = world.put(waits)
    assert not world.plugin.admission.admits_at_once(own)
    assert "quotaNameTopo: [top b], runtime: cpu:13, used: cpu:12" in (world.refusal(waits) or "")
