"""Hostile slices, classes and claims cost a pod its attempt, never the scheduler; and what is slow is cut short."""

import asyncio
import time
from random import Random

import pytest

from koordsched.config.errors import ConfigError
from koordsched.framework.status import Code
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    N2,
    allocated,
    claim,
    claiming,
    device_class,
    slice_of,
    world,
)
from tests.plugins.harness import StoppedClock, resolved
from tests.virtualtime import run

CLIMBING = "[0,1,2,3,4,5,6,7,8,9]"
COSTLY = "true"
for _variable in "fedcba":
    COSTLY = f"{CLIMBING}.all({_variable}, {COSTLY})"


def selecting(text, name="c", count=1):
    made = claim(name, count=count)
    made["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": text}}]
    return made


def garbage(at):
    """A device on which everything is wrong that the API server may let pass one day."""
    return (
        f"d{at}",
        {
            "attributes": {f"drv/a{at}": {"version": "not one"}, "b": {}},
            "capacity": {"memory": {"value": "1e400"}},
            "consumesCounters": [{"counterSet": "none", "counters": {"x": {"value": "many"}}}],
            "taints": [{"key": "", "effect": "Unknown"}],
        },
    )


def others_are_placed(*hostile):
    """A pod without claims is placed, whatever else there is. Returns where one with a good claim and one with a bad
    one are, and what the latter reads.
    """

    async def work():
        good = slice_of("n2", "d0", pool="good", name="good")
        async with world(N1, N2, device_class(), good, *hostile) as there:
            there.embedded.insert(claiming("bad", "c", nodeSelector={"kubernetes.io/hostname": "n1"}))
            there.embedded.insert(claiming("plain"))
            there.embedded.insert(claim("g"))
            there.embedded.insert(claiming("good", "g", nodeSelector={"kubernetes.io/hostname": "n2"}))
            await asyncio.sleep(20)
            assert there.where("plain") is not None
            return there.where("good"), there.where("bad"), there.message("bad")

    return run(work())


def test_a_slice_of_garbage():
    good, _, _ = others_are_placed(slice_of("n1", *[garbage(at) for at in range(128)], pool="bad"), claim())
    assert good == "n2"


def test_an_expression_that_costs_the_limit():
    began = time.process_time()
    good, bad, message = others_are_placed(slice_of("n1", "d0"), selecting(COSTLY))
    assert (good, bad) == ("n2", None)
    assert "actual cost limit exceeded" in message
    assert time.process_time() - began < 60


def test_a_pool_that_never_completes():
    incomplete = slice_of("n1", "d0", pool="bad")
    incomplete["spec"]["pool"]["resourceSliceCount"] = 1000
    good, bad, _ = others_are_placed(incomplete, claim(count=2))
    assert (good, bad) == ("n2", None)


def test_an_allocation_of_garbage():
    status = allocated("d0", where="n1")
    status["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "many"}}
    status["allocation"]["nodeSelector"] = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "x", "operator": "Maybe", "values": []}]}]
    }
    status["allocation"]["allocationTimestamp"] = "never"
    good, _, _ = others_are_placed(claim(status=status))
    assert good == "n2"


def test_ten_thousand_claims_of_one_template_cost_what_pods_do():
    count = 3000
    claims = [claim(f"c{at}") for at in range(count)]
    pods = [claiming(f"p{at}", f"c{at}") for at in range(count)]
    objects = (N1, device_class(), slice_of("n1", "d0"), *claims, *pods)
    scheduler = OfflineScheduler(resolved({}), IN_TREE, objects, clock=StoppedClock(), rng=Random(1))
    assert scheduler.schedule("default/p0").node == "n1"
    began = time.process_time()
    for at in range(1, 200):
        assert scheduler.schedule(f"default/p{at}").node == ""
    # What waits does not count: each is one attempt, found by what was found before.
    assert time.process_time() - began < 2.0


def slow_search():
    """A clock by which every look at it takes a second, and claims whose search takes many steps."""

    class Racing(StoppedClock):
        now = 1000.0
        look = 1.0

        def monotonic(self):
            self.now += self.look
            return self.now

    devices = [(f"d{at:02}", {"attributes": {"k": {"int": at % 7}, "u": {"string": f"{at}"}}}) for at in range(60)]
    wanted = claim()
    requests = [
        {
            "name": f"r{at}",
            "exactly": {
                "deviceClassName": "dc",
                "allocationMode": "ExactCount",
                "count": 4,
                "selectors": [{"cel": {"expression": f"device.attributes['drv'].u != '{at}'"}}],
            },
        }
        for at in range(4)
    ]
    wanted["spec"]["devices"] = {
        "requests": requests,
        "constraints": [{"matchAttribute": "drv/k"}, {"distinctAttribute": "drv/u"}],
    }
    return Racing(), (N1, device_class(), slice_of("n1", *devices), wanted, claiming("p", "c"))


def test_dra_case_106_a_search_ends_with_its_time():
    clock, objects = slow_search()
    args = {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1ms"}}]}]}
    scheduler = OfflineScheduler(resolved(args), IN_TREE, objects, clock=clock, rng=Random(1))
    found = scheduler.schedule("default/p")
    assert found.node == ""
    assert found.message.endswith("node n1: timed out trying to allocate devices")


def test_dra_case_106_a_node_whose_search_takes_too_long_is_not_chosen():
    clock, (first, *objects) = slow_search()
    hopeless = objects.pop(1)
    plenty = [(f"e{at:02}", {"attributes": {"k": {"int": 1}, "u": {"string": f"x{at}"}}}) for at in range(16)]
    args = {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1ms"}}]}]}
    objects = [*objects, N2, slice_of("n2", *plenty)]
    scheduler = OfflineScheduler(resolved(args), IN_TREE, objects, clock=clock, rng=Random(1))
    clock.look = 0.0
    assert scheduler.attempt("default/p").filter().feasible == 1  # this is known from now on
    clock.look = 1.0
    for thing in (first, hopeless):
        scheduler.add(thing)
    attempt = scheduler.attempt("default/p")
    verdicts = attempt.filter()
    names = scheduler.cluster.table.names
    assert [names[row] for row in verdicts.rows] == ["n2"]
    reason = attempt.profile.handle.reasons[verdicts.codes[names.index("n1")]]
    assert (reason.code, reason.texts) == (Code.UNRESOLVABLE, ("timed out trying to allocate devices",))


def test_dra_case_106_times_that_are_refused():
    args = {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "-1s"}}]}]}
    with pytest.raises(ConfigError, match="must be zero or positive"):
        resolved(args)
