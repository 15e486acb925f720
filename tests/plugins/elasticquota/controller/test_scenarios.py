"""The examples under config/examples/quota, end to end over the API."""

import asyncio

from tests.plugins.elasticquota.controller.cluster import EXAMPLES, quota_cluster
from tests.virtualtime import run

FULL = (
    "0/5 nodes are available: Insufficient quotas, quotaName: quota-example, runtime: cpu:80m,memory:40Mi, "
    "used: cpu:40m,memory:30Mi, pod's request: cpu:40m,memory:30Mi, exceedDimensions: [memory]."
)


def test_a_full_quota_makes_pods_wait():
    async def main():
        async with quota_cluster() as (cluster, _):
            cluster.apply(EXAMPLES / "1-limit" / "quota.yaml")
            await asyncio.sleep(1)
            cluster.apply(EXAMPLES / "1-limit" / "pods.yaml")
            await cluster.until(lambda: cluster.running() == ["first"])
            await cluster.until(lambda: cluster.condition("second") is not None)
            await asyncio.sleep(30)
            assert cluster.running() == ["first"]
            status, reason, message = cluster.condition("second")
            assert (status, reason) == ("False", "Unschedulable")
            assert message.startswith(FULL)
            assert cluster.used("quota-example") == {"cpu": "40m", "memory": "30Mi"}
            assert cluster.annotation("quota-example", "request") == {"cpu": "80m", "memory": "60Mi"}
            assert cluster.annotation("quota-example", "runtime") == {"cpu": "80m", "memory": "40Mi"}
            cluster.delete("Pod", "first")
            assert await cluster.until(lambda: cluster.running() == ["second"]) < 2

    run(main())


def low_and_high(folder, namespace, quota, quota_namespace="default"):
    """Three of low priority run, then three of high priority come: one fits, two take the place of two."""

    async def main():
        async with quota_cluster() as (cluster, _):
            cluster.apply(EXAMPLES / folder / "quota.yaml")
            await asyncio.sleep(1)
            cluster.apply(EXAMPLES / folder / "low.yaml", EXAMPLES / folder / "bystander.yaml")
            await cluster.until(lambda: len(cluster.running(namespace, app="low")) == 3)
            await cluster.until(lambda: len(cluster.running(app="bystander")) == 3)
            bystanders = cluster.running(app="bystander")
            low = cluster.running(namespace, app="low")
            await asyncio.sleep(2)
            assert cluster.used(quota, quota_namespace) == {"cpu": "300m", "memory": "30Mi"}

            cluster.apply(EXAMPLES / folder / "high.yaml")
            await cluster.until(lambda: len(cluster.running(namespace, app="high")) == 3)
            await asyncio.sleep(60)
            assert len(cluster.running(namespace, app="high")) == 3
            (left,) = cluster.running(namespace, app="low")
            assert left in low
            assert cluster.running(app="bystander") == bystanders
            assert cluster.used(quota, quota_namespace) == {"cpu": "400m", "memory": "40Mi"}
            preempted = [event for event in cluster.events() if event["reason"] == "Preempted"]
            assert {event["regarding"]["name"] for event in preempted} == set(low) - {left}
            # Their Deployment made others in their place, which wait for the quota.
            waiting = [pod["metadata"]["name"] for pod in cluster.pods(namespace, app="low")]
            waiting.remove(left)
            assert len(waiting) == 2
            for name in waiting:
                assert f"Insufficient quotas, quotaName: {quota}" in cluster.condition(name, namespace)[2]

    run(main())


def test_the_more_important_pods_of_a_quota_take_the_place_of_others():
    low_and_high("2-preemption", "default", "preemption-example")


def test_the_same_for_a_quota_of_namespaces():
    low_and_high("3-namespace", "team-red", "red")


def test_what_is_idle_is_lent_and_comes_back():
    async def main():
        async with quota_cluster() as (cluster, _):
            cluster.apply(EXAMPLES / "4-borrowing" / "quotas.yaml")
            await asyncio.sleep(1)
            cluster.apply(EXAMPLES / "4-borrowing" / "team-a.yaml")
            await cluster.until(lambda: len(cluster.running(app="team-a")) == 30)
            await asyncio.sleep(5)
            assert len(cluster.running(app="team-a")) == 30
            assert cluster.annotation("team-a", "runtime") == {"cpu": "300"}
            assert cluster.annotation("team-a", "request") == {"cpu": "400"}

            cluster.apply(EXAMPLES / "4-borrowing" / "team-b.yaml")
            # What is free goes to b at once, what a borrowed within the delay.
            await cluster.until(lambda: len(cluster.running(app="team-b")) >= 20, limit=5)
            await cluster.until(lambda: len(cluster.running(app="team-b")) == 25, limit=30)
            await cluster.until(lambda: len(cluster.running(app="team-a")) == 25, limit=5)
            await asyncio.sleep(60)
            for team in ("team-a", "team-b"):
                assert len(cluster.running(app=team)) == 25
                assert cluster.annotation(team, "runtime") == {"cpu": "250"}
                assert cluster.used(team) == {"cpu": "250"}
            revoked = [event for event in cluster.events() if event["reason"] == "QuotaRevoked"]
            assert len(revoked) == 5

    run(main())


def test_weights_on_three_levels():
    async def main():
        async with quota_cluster() as (cluster, _):
            cluster.apply(EXAMPLES / "4-borrowing" / "levels.yaml")
            await asyncio.sleep(1)
            cluster.apply(EXAMPLES / "4-borrowing" / "level-pods.yaml")
            await asyncio.sleep(120)
            expected = {
                "company": ("500", 71 * 7),
                "sales": ("166667m", 23 * 7),
                "research": ("333333m", 46 * 7),
                "research-one": ("60556m", 8 * 7),
                "research-two": ("111111m", 15 * 7),
                "research-three": ("161666m", 23 * 7),
            }
            expected["company"] = ("500", sum(expected[name][1] for name in ("sales", "research")))
            for name, (runtime, used) in expected.items():
                assert cluster.annotation(name, "runtime") == {"cpu": runtime}, name
                assert cluster.used(name) == {"cpu": str(used)}, name

    run(main())
