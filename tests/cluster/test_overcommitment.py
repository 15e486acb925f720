"""Over-commitment of nodes that virtual pods are on."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from tests.plugins.objects import container, node, pod


def test_what_virtual_pods_hold_is_not_counted():
    state = ClusterState()
    state.upsert_node(convert(node("alder", cpu="4", pods="2"), core.Node))

    def put(name, cpu, ip, virtual=""):
        wire = convert(pod(name, container(cpu=cpu, ports=[(ip, "TCP", 80)]), on="alder"), core.Pod)
        state.set_pod(state.pods.build(wire, virtual=virtual))

    put("held", "3", "10.0.0.1", virtual="thing/x")
    put("held-too", "4", "", virtual="thing/x")
    put("user", "3", "10.0.0.1")
    assert not state.overcommitments
    put("other", "1", "10.0.0.2")
    assert not state.overcommitments
    put("third", "2", "10.0.0.2")
    assert [str(excess) for excess in state.overcommitments.on("alder")] == [
        "cpu 6000m of 4000m",
        "hostPort TCP/80 2 of 1",
        "pods 3 of 2",
    ]


@pytest.mark.parametrize("held", ["", "10.0.0.1"])
@pytest.mark.parametrize("used", ["", "10.0.0.1"])
def test_a_host_port_that_a_virtual_pod_and_another_one_have(held, used):
    state = ClusterState()
    state.upsert_node(convert(node("alder"), core.Node))
    for name, ip, virtual in (("held", held, "thing/x"), ("user", used, "")):
        wire = convert(pod(name, container(ports=[(ip, "TCP", 80)]), on="alder"), core.Pod)
        state.set_pod(state.pods.build(wire, virtual=virtual))
    assert not state.overcommitments


@pytest.mark.parametrize("amount", ["1", "0", "lots"])
def test_a_resource_that_comes_and_goes_and_no_pod_ever_asked_for(amount):
    state = ClusterState()
    for amounts in ({}, {"example.com/a": amount}, {}):
        thing = node("alder")
        thing["status"]["allocatable"] |= amounts
        state.upsert_node(convert(thing, core.Node))
    assert not state.overcommitments
