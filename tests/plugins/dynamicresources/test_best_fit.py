"""The argument `bestFit`: offline and live, in replays, in profiles that differ."""

import asyncio
from random import Random

import pytest

from koordsched.config.errors import ConfigError
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG, Embedded
from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.dynamicresources.deviceworld import N1, claim, claiming, device_class, play, slice_of
from tests.plugins.dynamicresources.test_journal import state_of
from tests.plugins.harness import StoppedClock, resolved
from tests.virtualtime import run


def configuration(**schedulers):
    """A profile for each scheduler name, with its value of the argument."""
    profiles = [
        {"schedulerName": name, "pluginConfig": [{"name": "DynamicResources", "args": {"bestFit": value}}]}
        for name, value in schedulers.items()
    ]
    return {"profiles": profiles}


def sized(name, memory):
    return name, {"capacity": {"mem": {"value": memory}}}


DEVICES = (N1, device_class(), slice_of("n1", sized("d0", "80Gi"), sized("d1", "40Gi")))


def devices_of(embedded, name):
    """The devices of a claim."""
    results = embedded.get("ResourceClaim", name, api_version="resource.k8s.io/v1")["status"]["allocation"]["devices"]
    return [each["device"] for each in results["results"]]


@pytest.mark.parametrize(("args", "device"), [({}, "d0"), ({"bestFit": False}, "d0"), ({"bestFit": True}, "d1")])
def test_a_large_device_is_kept_for_those_who_need_it(args, device):
    async def steps(there):
        await asyncio.sleep(5)
        assert devices_of(there.embedded, "c") == [device]

    play(steps, *DEVICES, claim("c"), claiming("p", "c"), args=args)


def test_profiles_may_differ():
    async def work():
        embedded = Embedded(1)
        pods = claiming("small", "c", schedulerName="a"), claiming("first", "e", schedulerName="b")
        for thing in (*DEVICES, claim("c"), claim("e"), pods[0]):
            embedded.insert(thing)
        config = {**DEFAULT_CONFIG, **configuration(a=True, b=False)}
        async with Recorded(embedded, config).running():
            await asyncio.sleep(5)
            embedded.insert(pods[1])
            await asyncio.sleep(5)
        return devices_of(embedded, "c"), devices_of(embedded, "e")

    assert run(work()) == (["d1"], ["d0"])


def test_replays_repeat_it():
    async def living():
        embedded = Embedded(1)
        for thing in (*DEVICES, claim("c"), claiming("p", "c")):
            embedded.insert(thing)
        config = {**DEFAULT_CONFIG, **configuration(**{"default-scheduler": True})}
        recorded = Recorded(embedded, seed=1, seconds_per_segment=4, configuration=config)
        async with recorded.running():
            await asyncio.sleep(10)
            return recorded, state_of(recorded.scheduler), devices_of(embedded, "c")

    recorded, state, devices = run(living())
    assert devices == ["d1"]
    for scheduler in replayed_from_each_segment(recorded.journal):
        assert state_of(scheduler) == state


def test_with_devices_whose_errors_are_passed_over():
    pod = claiming("p", "c")
    wanting = claim("c")
    expression = "device.attributes['drv'].k == 1"
    wanting["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    config = configuration(**{"default-scheduler": True})
    config["profiles"][0]["pluginConfig"][0]["args"]["skipFaultyDevices"] = True
    good = {"attributes": {"k": {"int": 1}}}
    things = (N1, device_class(), slice_of("n1", "d0", ("d1", good)), wanting, pod)
    scheduler = OfflineScheduler(resolved(config), IN_TREE, things, clock=StoppedClock(), rng=Random(1))
    assert scheduler.schedule("default/p").node == "n1"


def test_what_is_not_true_or_false_is_refused():
    with pytest.raises(ConfigError, match="bestFit"):
        resolved(configuration(default="often"))
