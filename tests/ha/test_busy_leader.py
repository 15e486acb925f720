"""A leader whose event loop is busy for longer than its lease lasts goes on leading."""

import asyncio
import json
import os

import pytest

from tests.ha.cluster import Cluster, pod
from tests.ha.replicas import Replicas
from tests.ha.test_failover import SHORT, SHORT_LEASE
from tests.plugins.test_outoftree import distribution

BUSY = 2 * SHORT
"""Seconds."""

PLUGIN = f"""
import time

from koordsched.config.catalog import entry
from koordsched.framework.declaration import API_VERSION, Declaration
from koordsched.framework.interface import PreFilter, PreFilterResult


class Busy(PreFilter):
    name = "Busy"

    def __init__(self, args, handle):
        pass

    def pre_filter(self, cycle, pod):
        if pod.name == "busy":
            until = time.monotonic() + {BUSY}
            while time.monotonic() < until:
                pass
        return PreFilterResult(None)


BUSY = Declaration("Busy", Busy, entry("preFilter"), api_version=API_VERSION)
"""


@pytest.mark.slow
async def test_the_lease_is_kept_while_a_pod_costs_more_time_than_it_lasts(tmp_path, monkeypatch):
    distribution(tmp_path, "busy_plugin", "Busy = busy_plugin:BUSY", PLUGIN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    config = tmp_path / "config.yaml"
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Busy"}]}}}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        )
    )
    cluster = Cluster(tmp_path)
    replicas = Replicas(cluster, 2, *SHORT_LEASE, f"--config={config}")
    try:
        await cluster.start()
        cluster.observe()
        await replicas.start()
        leader = await replicas.leader()
        cluster.put_under_load(20)
        await cluster.more_bindings(10, 30)
        async with cluster._session.post("/api/v1/namespaces/default/pods", json=pod("busy")) as answer:
            assert answer.status == 201
        await leader.process.wait_for("the lease was renewed by its own thread")
        await asyncio.sleep(BUSY)
        await cluster.more_bindings(10, 30)
        assert len({holder for _, holder in cluster.holders if "_" in holder}) == 1, "hollow nodes have leases, too"
        assert leader.process.running
        await cluster.stop_load()
        assert cluster.wrong == []
    finally:
        await replicas.stop()
        await cluster.stop()
