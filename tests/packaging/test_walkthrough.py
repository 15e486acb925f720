"""The plugin of CONTRIBUTING.md is one that works: put together from its blocks, and run."""

import asyncio
import json
import re
from itertools import permutations
from pathlib import Path
from random import Random
from textwrap import dedent, indent

import pytest

from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import Embedded, scheduler_on
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()

IMPORTS = """
import json

import numpy as np

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import ASSIGNED_POD, NODE as NODES, ActionType, ClusterEvent
from koordsched.framework.interface import PreBind, Reserve, ShapeFilter, ShapePreFilter
from koordsched.framework.status import SKIP, SUCCESS, Code
from koordsched.plugins.shared.matching.rows import refused
from koordsched.queue.hints import HintRegistration, Scope
"""


def _in_its_class(block):
    """Blocks that show methods alone are those of the class before."""
    block = dedent(block)
    return indent(block, "    ") if block.startswith(("def ", "async def ")) else block


BLOCKS = [_in_its_class(block) for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)]
PLUGIN: dict = {}
exec(IMPORTS + "\n".join(BLOCKS), PLUGIN)  # the file is ours
CONFIGURATION = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def offline(*objects):
    resolved = resolved_with(CONFIGURATION, [PLUGIN["Gpus"]])
    return OfflineScheduler(resolved, registry_with([PLUGIN["Gpus"]]), objects, clock=StoppedClock(), rng=Random(1))


def taken(scheduler):
    return scheduler.cluster.shared(PLUGIN["GpuBooks"]).taken.data[scheduler.cluster.table.row_of["n"]].tolist()


def gpus(count, name="n"):
    made = node(name, cpu="64")
    made["metadata"]["annotations"] = {PLUGIN["NODE"]: str(count)}
    return made


def wanting(count, name="p", minors=None, **more):
    made = pod(name, container(cpu="1"), on="n" if minors else None, **more)
    made["metadata"]["annotations"] = {PLUGIN["REQUEST"]: str(count)}
    if minors:
        made["metadata"]["annotations"][PLUGIN["ALLOCATED"]] = json.dumps(minors)
    return made


def test_it_is_short():
    assert sum(bool(line.strip()) for block in BLOCKS for line in block.splitlines()) <= 70


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_restart_in_any_order(order):
    objects = (gpus(4), wanting(2, "a", [0, 1]), wanting(1, "b", [3]))
    scheduler = offline(*(objects[i] for i in order), wanting(1), wanting(1, "q"))
    assert taken(scheduler) == [1, 1, 0, 1, 0, 0, 0, 0]
    assert scheduler.schedule("default/p").node == "n"
    assert taken(scheduler) == [1, 1, 1, 1, 0, 0, 0, 0]
    assert "1 Insufficient example.com/gpus" in scheduler.schedule("default/q").message


def test_preemption():
    scheduler = offline(gpus(2), wanting(1, "low", [0], priority=1), wanting(1, "lower", [1]), wanting(1, priority=9))
    assert scheduler.explain("default/p").victims == ["default/lower"]


def test_live():
    async def main():
        embedded = Embedded()
        embedded.insert(gpus(2))
        async with scheduler_on(embedded, plugins=[PLUGIN["Gpus"]]) as running:
            embedded.insert(wanting(2))
            embedded.insert(wanting(1, "later"))
            await asyncio.sleep(3)
            assert taken(running.scheduler)[:2] == [1, 1]
            assert embedded.get("Pod", "p")["metadata"]["annotations"][PLUGIN["ALLOCATED"]] == "[0, 1]"
            embedded.insert(gpus(2, "other"))
            await asyncio.sleep(3)
            assert embedded.get("Pod", "later")["spec"]["nodeName"] == "other"

    run(main())
