"""The argument `skipFaultyDevices`: offline and live, in explanations and replays, in profiles that differ."""

import asyncio
from random import Random

import numpy as np
import pytest
import yaml

from koordsched.config.errors import ConfigError
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG, Embedded
from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.dynamicresources.deviceworld import N1, N2, claim, claiming, device_class, play, slice_of
from tests.plugins.dynamicresources.test_journal import state_of
from tests.plugins.harness import StoppedClock, resolved
from tests.virtualtime import run

NO_KEY = "claim default/c: selector #0: CEL runtime error: no such key: k"


def wanting_k(name="c", count=1):
    made = claim(name, count)
    expression = "device.attributes['drv'].k == 1"
    made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    return made


def configuration(**schedulers):
    """A profile for each scheduler name, with its value of the argument; None: without it."""
    profiles = []
    for name, value in schedulers.items():
        args = {} if value is None else {"skipFaultyDevices": value}
        profiles.append({"schedulerName": name, "pluginConfig": [{"name": "DynamicResources", "args": args}]})
    return {"profiles": profiles}


DEVICES = (N1, device_class(), slice_of("n1", "d0", ("d1", {"attributes": {"k": {"int": 1}}})))


def attempted(value, pod, *objects, name="default"):
    scheduler = OfflineScheduler(
        resolved(configuration(**{name: value})),
        IN_TREE,
        (*DEVICES, pod, *objects),
        clock=StoppedClock(),
        rng=Random(1),
    )
    return scheduler, scheduler.schedule("default/p")


@pytest.mark.parametrize("value", [None, False])
def test_by_default_the_error_of_a_device_ends_the_attempt(value):
    pod = claiming("p", "c", schedulerName="default")
    _, found = attempted(value, pod, wanting_k())
    assert found.node == ""
    assert NO_KEY in found.message


def test_the_device_is_passed_over():
    pod = claiming("p", "c", schedulerName="default")
    _, found = attempted(True, pod, wanting_k())
    assert found.node == "n1"


def test_the_explanation_counts_the_devices_with_what_fails():
    pod = claiming("p", "c", schedulerName="default")
    scheduler, found = attempted(True, pod, wanting_k(count=2))
    assert "cannot allocate all claims" in found.message
    attempt = scheduler.attempt("default/p")
    attempt.filter()
    plugin = attempt.profile.plugins["DynamicResources"]
    (lines,) = plugin.explain_verdicts(attempt.cycle, np.array([0], dtype=np.intp))
    assert lines == [f"claim default/c, request r: needs 2, 1 available, 1 with a selector that fails ({NO_KEY})"]


def test_profiles_may_differ():
    objects = (
        wanting_k("c"),
        wanting_k("e"),
        claiming("lenient", "c", schedulerName="a"),
        claiming("strict", "e", schedulerName="b"),
    )
    for order in (("lenient", "strict"), ("strict", "lenient")):
        config = resolved(configuration(a=True, b=None))
        scheduler = OfflineScheduler(config, IN_TREE, (*DEVICES, *objects), clock=StoppedClock(), rng=Random(1))
        found = {name: scheduler.attempt(f"default/{name}").filter() for name in order}
        assert (found["lenient"].feasible, found["strict"].feasible) == (1, 0)


def test_another_node_gets_the_pod():
    async def steps(there):
        await asyncio.sleep(5)
        assert there.where("p") == "n2"

    good = slice_of("n2", ("d0", {"attributes": {"k": {"int": 1}}}))
    objects = (N1, N2, device_class(), slice_of("n1", "d0"), good, wanting_k(), claiming("p", "c"))
    play(steps, *objects, args={"skipFaultyDevices": True})


def test_replays_repeat_it():
    async def living():
        embedded = Embedded(1)
        for thing in (*DEVICES, wanting_k(), claiming("p", "c")):
            embedded.insert(thing)
        config = {**DEFAULT_CONFIG, **configuration(**{"default-scheduler": True})}
        recorded = Recorded(embedded, seed=1, seconds_per_segment=4, configuration=config)
        async with recorded.running():
            await asyncio.sleep(10)
            return recorded, state_of(recorded.scheduler)

    recorded, state = run(living())
    assert "n1" in str(state[0])
    for scheduler in replayed_from_each_segment(recorded.journal):
        assert state_of(scheduler) == state


def test_what_is_not_true_or_false_is_refused():
    with pytest.raises(ConfigError, match="skipFaultyDevices"):
        resolved(configuration(default="often"))


def test_the_example_of_all_arguments_has_the_default():
    with open("config/full.yaml", encoding="utf-8") as file:
        (args,) = (
            each["args"]
            for profile in yaml.safe_load(file)["profiles"]
            for each in profile["pluginConfig"]
            if each["name"] == "DynamicResources"
        )
    assert args["skipFaultyDevices"] is args["bestFit"] is False
