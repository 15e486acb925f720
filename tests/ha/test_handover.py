"""docs/migration.md, command by command: from kube-scheduler to koordsched and back, under load, amid a preemption."""

import json
import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from tests.ha.cluster import Cluster
from tests.ha.handover import ISLAND, REAL, KoordschedContainers, KoordSchedulerContainers, Preemption, StaticPods
from tests.ha.replicas import ACQUIRED
from tests.ha.runbook import Runbook
from tests.packaging.kubectl import needs_kubectl
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "migration.md").read_text()
RUNBOOK = Runbook(TEXT)
VARIABLES = {("", 0)}
"""The block that says what the others need to know; a `Site` sets it."""
LOAD = 30
"""Pods of the load at a time: everything fits, so everything must be bound in the end."""

pytestmark = needs_kubectl


class Site:
    """A cluster in which kube-scheduler runs, and a shell in a checkout of this repository."""

    def __init__(self, directory):
        self.directory = directory
        self.cluster = Cluster(directory)
        self.server = f"http://127.0.0.1:{self.cluster.port}"
        for name in ("static", "aside", "bin"):
            (directory / name).mkdir()
        (directory / "static" / "kube-scheduler.yaml").write_text("the manifest of a static pod\n")
        shutil.copytree(ROOT / "manifests", directory / "manifests")
        koordsched = directory / "bin" / "koordsched"
        koordsched.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m koordsched "$@"\n')
        koordsched.chmod(0o755)
        write_kubeconfig(directory / "admin.conf", kubeconfig(self.server))
        self.static = StaticPods(directory / "static", self.server)
        self.containers = KoordschedContainers(self.server, directory)

    async def do(self, section, number=0):
        """One block of the runbook."""
        environment = {
            **os.environ,
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.directory / "admin.conf"),
            "STATIC": str(self.directory / "static"),
            "ASIDE": str(self.directory / "aside"),
            "CONFIG": str(self.directory / "scheduler-config.yaml"),
        }
        return await RUNBOOK.run(section, number, environment, self.directory)

    async def post(self, path, thing):
        async with aiohttp.ClientSession(self.server) as session, session.post(path, json=thing) as answer:
            assert answer.status == 201, await answer.text()

    @property
    def leads(self):
        """Which program holds the lease, as far as those that run say."""
        acquired = "uccessfully acquired lease"  # client-go begins with a capital letter
        found = ["koordsched" for process in self.containers.running if process.says(ACQUIRED)]
        static = self.static.process
        if static is not None and static.running and static.says(acquired):
            found.append("kube-scheduler")
        return found


@asynccontextmanager
async def site(directory, per_second=10):
    """Under load; at the end everything is bound, once, nothing is lost and no node holds too much."""
    here = Site(directory)
    try:
        await here.cluster.start()
        here.cluster.observe()
        here.static.start()
        here.containers.start()
        await until(lambda: here.leads == ["kube-scheduler"], "kube-scheduler leads", 60)
        here.cluster.put_under_load(per_second, LOAD)
        await here.cluster.more_bindings(5, 30)
        yield here
        await here.cluster.stop_load()
        await here.cluster.all_bound(60)
        assert here.cluster.wrong == []
    finally:
        await here.containers.stop()
        await here.static.stop()
        await here.cluster.stop()


async def there_and_back(directory):
    """Both hand-overs, each with a pod nominated by the one and bound by the other."""
    async with site(directory) as here:
        await here.do("Check the configuration")
        await here.do("1. Start koordsched as a standby")
        await until(lambda: len(here.containers.processes) == 2, "two replicas", 60)
        for process in here.containers.processes.values():
            await process.wait_for("watching ")
        assert here.leads == ["kube-scheduler"]

        await hand_over(here, "there", "2. Hand over", ["koordsched"])
        await here.do("3. Check", 0)
        await here.cluster.more_bindings(20, 60)
        await hand_over(here, "back", "Back", ["kube-scheduler"])
        await here.cluster.more_bindings(20, 60)
        await here.do("Back", 1)
        await until(lambda: not here.containers.running, "the replicas have ended", 60)
        await here.cluster.more_bindings(10, 60)


async def hand_over(here, name, section, to, *, number=0, scheduler="default-scheduler"):
    """One hand-over in the middle of a preemption; `to`: who says afterwards that they lead."""
    preemption = Preemption(here.server, name, scheduler)
    try:
        await preemption.begin()
        await here.do(section, number)
        await until(lambda: here.leads == to, f"{to} lead", 60)
        await preemption.add_rival()
        await here.cluster.more_bindings(10, 60)
        # The new one has seen everything: the promise stands, and the rival has not taken the room.
        assert await preemption.nominated_to() == (ISLAND, None)
        await preemption.end()
        assert await preemption.outcome() == (ISLAND, None)
        await preemption.clear()
    finally:
        await preemption.close()


async def test_there_and_back(tmp_path, monkeypatch):
    monkeypatch.delenv(REAL, raising=False)
    await there_and_back(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} does not name a kube-scheduler")
async def test_there_and_back_with_the_real_kube_scheduler(tmp_path):
    await there_and_back(tmp_path)


@pytest.mark.slow
async def test_koordsched_that_does_not_lead_can_be_taken_away_again(tmp_path, monkeypatch):
    monkeypatch.delenv(REAL, raising=False)
    async with site(tmp_path) as here:
        await here.do("Compare decisions")
        await here.do("1. Start koordsched as a standby")
        await here.cluster.more_bindings(10, 60)
        await here.do("Back", 1)
        await here.cluster.more_bindings(10, 60)
        assert here.leads == ["kube-scheduler"]


@pytest.mark.slow
async def test_side_by_side(tmp_path, monkeypatch):
    monkeypatch.delenv(REAL, raising=False)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 4, "selector": {"matchLabels": labels}, "template": template},
    }
    async with site(tmp_path) as here:
        await here.post("/apis/apps/v1/namespaces/default/deployments", web)

        async def scheduled_by():
            """The scheduler's name of every pod of the workload that has a node."""
            pods = [p for p in await here.cluster.pods() if p["metadata"].get("labels", {}).get("app") == "web"]
            pods = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
            return [p["spec"]["schedulerName"] for p in pods if p["spec"].get("nodeName")]

        await here.do("Side by side", 0)
        await until(lambda: "koordsched" in here.leads, "koordsched leads", 60)
        await here.do("Side by side", 1)
        assert await scheduled_by() == ["koordsched"] * 4
        assert sorted(here.leads) == ["koordsched", "kube-scheduler"]
        await here.do("Side by side", 2)
        assert await scheduled_by() == ["default-scheduler"] * 4


@pytest.mark.slow
async def test_from_koord_scheduler(tmp_path, monkeypatch):
    monkeypatch.delenv(REAL, raising=False)
    labels = {"app": "koord-scheduler"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "koord-scheduler"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"resourceNamespace": "koordinator-system", "resourceName": "koord-scheduler"},
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "plugins": {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
            }
        ],
    }
    async with site(tmp_path) as here:
        koord = KoordSchedulerContainers(here.server)
        try:
            koord.start()
            (tmp_path / "scheduler-config.yaml").write_text(json.dumps(configuration))
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
            await here.post("/api/v1/namespaces", namespace)
            await here.post("/apis/apps/v1/namespaces/koordinator-system/deployments", deployment)
            await until(lambda: any(p.says("acquired lease") for p in koord.running), "koord-scheduler leads", 60)
            await here.do("From koord-scheduler", 0)
            await until(lambda: len(here.containers.running) == 2, "two replicas", 60)
            for process in here.containers.running:
                await process.wait_for("watching ")
            assert here.leads == ["kube-scheduler"]
            both = ["koordsched", "kube-scheduler"]
            await hand_over(here, "koord", "From koord-scheduler", both, number=1, scheduler="koord-scheduler")
            assert koord.running == []
        finally:
            await koord.stop()


def test_every_block_of_the_runbook_is_run_by_a_test():
    source = Path(__file__).read_text()
    named = {(section, number) for section, number in RUNBOOK.blocks - VARIABLES if f'"{section}"' in source}
    assert named == RUNBOOK.blocks - VARIABLES


def test_the_variables_of_the_runbook_are_those_of_the_site():
    lines = TEXT.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.partition("=")[0] for line in lines] == ["export STATIC", "export ASIDE", "export CONFIG"]
