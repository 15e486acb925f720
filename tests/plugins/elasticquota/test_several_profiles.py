"""Several profiles with the plugin in one scheduler: one set of books, each profile's own way to admit."""

import json
from random import Random

import pytest

from koordsched import config
from koordsched.framework.interface import CycleState
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import amounts, configuration
from tests.plugins.harness import StoppedClock


def two(first, second):
    """A scheduler with two profiles, `one` and `two`, of these arguments, and the warnings about them."""
    document = configuration()
    frees = {"disabled": [{"name": "*"}], "enabled": [{"name": "DynamicResources"}, {"name": "ElasticQuota"}]}
    document["profiles"] = [
        {**configuration(args, frees)["profiles"][0], "schedulerName": name}
        for name, args in (("one", first), ("two", second))
    ]
    resolved = config.resolve(config.load(json.dumps(document), catalog=CATALOG), catalog=CATALOG)
    scheduler = OfflineScheduler(resolved, IN_TREE, (), clock=StoppedClock(), rng=Random(1))
    return scheduler, config.warnings(resolved, CATALOG, IN_TREE.keys())


def admit(scheduler, name, size, profile):
    """A pod of a profile asks for so much of quota `q`; whether it is admitted, in which case it is placed."""
    own = scheduler.add(pod(name, {"cpu": size}, "q", scheduler=profile))
    status = scheduler.profiles[profile].plugins["ElasticQuota"].pre_filter(CycleState(own), own)
    if status.ok:
        scheduler.cluster.assume(own, scheduler.cluster.table.row_of["n"])
    return status.ok


@pytest.mark.parametrize("by_runtime", [True, False])
def test_pods_of_all_profiles_share_the_quota(by_runtime):
    args = {"enableRuntimeQuota": by_runtime}
    scheduler, warnings = two(args, args)
    for thing in (node("n", cpu=100), quota("q", {"cpu": 10})):
        scheduler.add(thing)
    sizes = [("one", 6), ("two", 5), ("two", 4), ("one", 1)]
    admitted = [admit(scheduler, f"p{number}", size, profile) for number, (profile, size) in enumerate(sizes)]
    assert (admitted, warnings) == ([True, False, True, False], [])
    books = {profile.plugins["ElasticQuota"].books for profile in scheduler.profiles.values()}
    assert len(books) == 1
    assert books.pop().quota("q").used == amounts(cpu=10)


def test_each_profile_admits_in_its_own_way():
    """By max, a pod passes that the runtime of the quota would not let through."""
    scheduler, warnings = two({"enableRuntimeQuota": False}, {"enableRuntimeQuota": True})
    for thing in (node("n", cpu=8), quota("q", {"cpu": 10}), quota("r", {"cpu": 10}), pod("other", {"cpu": 10}, "r")):
        scheduler.add(thing)
    # Half of the node is the share of each.
    assert [admit(scheduler, profile, 5, profile) for profile in ("two", "one")] == [False, True]
    assert warnings == []


def test_what_concerns_the_cluster_is_settled_by_the_first_profile():
    first = {"enableMinQuotaScale": False, "defaultQuotaGroupMax": {"cpu": "7"}}
    second = {"monitorAllQuotas": True, "defaultQuotaGroupMax": {"cpu": "9"}, "enableCheckParentQuota": True}
    scheduler, warnings = two(first, second)
    for thing in (node("n", cpu=4), quota("q", {"cpu": 10}, {"cpu": 8})):
        scheduler.add(thing)
    books = scheduler.profiles["two"].plugins["ElasticQuota"].books
    assert books is scheduler.profiles["one"].plugins["ElasticQuota"].books
    assert books.quota("koordinator-default-quota").max == amounts(cpu=7)
    assert books.quota("q").scaled_min == amounts(cpu=8)
    effect = "of ElasticQuota has no effect: that of profile one counts for all profiles"
    assert warnings == [
        f"profiles[1]: {field} {effect}"
        for field in ("defaultQuotaGroupMax", "monitorAllQuotas", "enableMinQuotaScale")
    ]
