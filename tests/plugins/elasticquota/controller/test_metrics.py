"""Metrics of quotas (elasticquota spec 5.2, section 7 case 25)."""

import asyncio
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from koordsched.observability.exposition import render
from koordsched.observability.metrics import Metrics
from koordsched.plugins.elasticquota.controller.metrics import LABELS, TimedBooks, observe_quotas
from tests.plugins.elasticquota.controller.books import Ledger
from tests.virtualtime import run

STATUS = "scheduler_elastic_quota_status"


def scraped(ledger, *, by_runtime=True):
    """(name, resource, field) -> value, and all samples of the family."""
    metrics = Metrics(process_metrics=False)
    observe_quotas(metrics, ledger.books, by_runtime=by_runtime)(0.25)

    async def main():
        return await render(metrics, asyncio.get_running_loop().time)

    text = run(main()).decode()
    assert "scheduler_update_elastic_quota_status_duration_seconds_sum 0.25" in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families[STATUS].samples
    collected = [sample for family in metrics.registry.collect() if family.name == STATUS for sample in family.samples]
    assert [(each.labels, each.value) for each in collected] == [(each.labels, each.value) for each in samples]
    return {(one.labels["name"], one.labels["resource"], one.labels["field"]): one.value for one in samples}, samples


def test_elasticquota_case_25_values_and_labels():
    ledger = Ledger([{"cpu": "10", "memory": "1000"}])
    ledger.quota("p", {"cpu": 8, "memory": 500}, {"cpu": 2}, is_parent="true")
    ledger.quota("q", {"cpu": 4, "memory": 500}, {"cpu": 1}, parent="p", annotations={"shared-weight": '{"cpu":3}'})
    ledger.pod("a", "q", {"cpu": 1, "memory": 50})
    values, samples = scraped(ledger)
    assert all(tuple(sorted(sample.labels)) == tuple(sorted(LABELS)) for sample in samples)
    of_q = {key[1:]: value for key, value in values.items() if key[0] == "q"}
    assert of_q == {
        ("cpu", "used"): 1000,
        ("memory", "used"): 50,
        ("cpu", "request"): 1000,
        ("memory", "request"): 50,
        ("cpu", "child-request"): 1000,
        ("memory", "child-request"): 50,
        ("cpu", "runtime"): 1000,
        # Without weight nothing beyond min.
        ("memory", "runtime"): 0,
        ("cpu", "min"): 1000,
        ("cpu", "max"): 4000,
        ("memory", "max"): 500,
        ("cpu", "sharedWeight"): 3000,
    }
    (labels,) = [one.labels for one in samples if one.labels["name"] == "q" and one.labels["field"] == "min"]
    assert (labels["parent"], labels["is_parent"], labels["tree"]) == ("p", "false", "")


def test_elasticquota_case_25_series_go_with_the_quota():
    ledger = Ledger([{"cpu": "10"}])
    ledger.quota("q", {"cpu": 4})
    assert ("q", "cpu", "max") in scraped(ledger)[0]
    ledger.store.delete("default", "q")
    assert not any(key[0] == "q" for key in scraped(ledger)[0])


def test_without_runtimes():
    ledger = Ledger([{"cpu": "10"}])
    ledger.quota("q", {"cpu": 4})
    ledger.pod("a", "q", {"cpu": 1})
    assert ("q", "cpu", "runtime") in scraped(ledger)[0]
    assert ("q", "cpu", "runtime") not in scraped(ledger, by_runtime=False)[0]


def test_unschedulable_resources_of_a_tree():
    ledger = Ledger([{"cpu": "10"}], multiple_trees=True)
    annotations = {"total-resource": '{"cpu":"4"}', "unschedulable-resource": '{"cpu":"1500m"}'}
    labels = {"is_root": "true", "tree_id": "t", "is_parent": "true"}
    ledger.quota("root-t", {"cpu": 4}, annotations=annotations, **labels)
    assert scraped(ledger)[0]["root-t", "cpu", "unschedulable-resource"] == 1500


def test_time_spent_on_the_books():
    ledger = Ledger([{"cpu": "10"}])
    metrics = Metrics(process_metrics=False)
    ticks = iter(range(1000))
    ledger.cluster.replace_observer(ledger.books, TimedBooks(metrics, ledger.books, lambda: next(ticks)))

    def since():
        """How often each operation was measured since this was asked last."""
        counts = Counter(
            {
                sample.labels["operation"]: int(sample.value)
                for family in metrics.registry.collect()
                if family.name == "scheduler_elastic_quota_process_latency"
                for sample in family.samples
                if sample.name.endswith("_count")
            }
        )
        news = counts - known
        known.update(news)
        return dict(news)

    known = Counter()
    ledger.quota("q", {"cpu": 4})
    assert since() == {"UpdateQuota": 1}
    ledger.pod("a", "q", {"cpu": 1}, node="")
    ledger.pod("b", "q", {"cpu": 1}, node="")
    assert since() == {"OnPodAdd": 2}
    pod = ledger.pod("a", "q", {"cpu": 2}, node="")
    ledger.cluster.assume(pod, 0)
    ledger.cluster.forget(pod)
    ledger.cluster.assume(pod, 0)
    assert since() == {"OnPodUpdate": 1, "ReservePod": 2, "UnreservePod": 1}
    # Two sizes of pods, one of them on a node.
    assert ledger.books.quota("q").used == {"cpu": 2 * 10**9}
    assert since() == {"UpdateGroupDeltaRequestNoLock": 2, "UpdateGroupDeltaUsedNoLock": 1}
    ledger.cluster.pod_gone("b")
    ledger.quota("r", {"cpu": 20})
    ledger.pod("c", "r", {"cpu": 20}, node="")
    assert since() == {"OnPodDelete": 1, "UpdateQuota": 1, "UpdateGroupDeltaRequestNoLock": 1, "OnPodAdd": 1}
    # More is asked for than there is: everything is worked out anew, and once.
    assert ledger.books.quota("r").runtime == {"cpu": 8_333 * 10**6}
    assert ledger.books.quota("q").runtime == {"cpu": 1_667 * 10**6}
    assert since() == {"UpdateGroupDeltaRequestNoLock": 1, "resetQuotaNoLock": 1, "RefreshRuntime": 1}
    ledger.store.delete("default", "r")
    assert since()["DeleteQuota"] == 1


def test_seconds_are_those_of_the_clock():
    ledger = Ledger([{"cpu": "10"}])
    metrics = Metrics(process_metrics=False)
    ticks = iter(range(1000))
    ledger.cluster.replace_observer(ledger.books, TimedBooks(metrics, ledger.books, lambda: next(ticks)))
    ledger.quota("q", {"cpu": 4})
    ledger.pod("a", "q", {"cpu": 1}, node="")
    # Every look at the clock is a second later.
    sums = [
        (sample.labels["operation"], sample.value)
        for family in metrics.registry.collect()
        if family.name == "scheduler_elastic_quota_process_latency"
        for sample in family.samples
        if sample.name.endswith("_sum") and sample.value
    ]
    assert sums == [("OnPodAdd", 1), ("UpdateQuota", 1)]
