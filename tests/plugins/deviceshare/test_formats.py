"""Output formats of `koordsched devices`, and how Devices that are wrong are shown, counted and described in Events."""

import asyncio

import pytest
import yaml

from koordsched.cli.pluginmetrics import observe_plugins
from tests.cli.clusters import run, run_json
from tests.plugins.deviceshare.machines import device, gpu, node, pod
from tests.plugins.deviceshare.running import cluster, given, put
from tests.plugins.deviceshare.test_command import file, holder, machine, shown
from tests.plugins.deviceshare.test_metrics import exposed
from tests.virtualtime import run as run_virtually

__all__ = ["file"]


@pytest.mark.parametrize("where", [[], ["n"]], ids=["all nodes", "one node"])
def test_yaml_says_what_json_says(file, where):
    options = ["-f", file(*machine(), holder())]
    said = run("devices", *where, *options, "-o", "yaml")
    assert said.exit_code == 0, said.stderr
    assert yaml.safe_load(said.stdout) == run_json("devices", *where, *options)[1]


@pytest.mark.parametrize("where", [[], ["n"]], ids=["all nodes", "one node"])
def test_wide_has_all_that_the_table_has(file, where):
    options = ["-f", file(*machine(), holder())]
    table, wide = (shown(*where, *options, "-o", form) for form in ("table", "wide"))
    assert set(table.split()) <= set(wide.split())


def wrong_devices():
    """Name -> (entries of a Device, how many GPUs it comes to, words of the problem; "" if there is none)."""
    without = {key: value for key, value in gpu(0, "8Gi").items() if key != "minor"}
    return {
        "no minor": ([without, gpu(1, "8Gi")], 2, "a gpu without minor counts as minor 0"),
        "200 minors": ([gpu(minor, "8Gi") for minor in range(200)], 128, "gpu 128 is ignored: minors are 0 to 127"),
        "the same minor twice": ([gpu(3, "8Gi"), {**gpu(3, "8Gi"), "id": "GPU-other"}], 1, "gpu 3"),
        "the same id twice": ([gpu(0, "8Gi"), {**gpu(1, "8Gi"), "id": "GPU-0"}], 2, ""),
    }


@pytest.mark.parametrize("name", wrong_devices())
def test_a_wrong_device_is_shown_with_what_is_wrong(file, name):
    entries, count, problem = wrong_devices()[name]
    _, found = run_json("devices", "n", "-f", file(node(), device(*entries)))
    assert len(found["devices"]) == count
    assert found["node"]["report"] == ("invalid" if problem else "valid")
    assert [problem in text for text in found["node"]["problems"][:1]] == ([True] if problem else [])
    assert (problem in shown("n", "-f", file(node(), device(*entries)))) or not problem


@pytest.mark.parametrize("name", wrong_devices())
def test_a_wrong_device_is_counted_told_and_used(name):
    entries, count, problem = wrong_devices()[name]

    async def main():
        async with cluster(node(), device(*entries)) as (embedded, running):
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)
            put(embedded, pod(gpu=100))
            await asyncio.sleep(5)
            events = [each["note"] for each in embedded.events() if each["reason"] == "InvalidDevice"]
            return given(embedded, "p"), events, exposed(metrics, "koordsched_devices")

    devices, events, counts = run_virtually(main())
    assert len(devices["gpu"]) == 1
    assert [problem in text for text in events] == ([True] if problem else [])
    found = {tuple(sorted(key)): number for key, number in counts.items()}
    assert found == {key: n for key, n in {("allocated", "gpu"): 1, ("free", "gpu"): count - 1}.items() if n}
