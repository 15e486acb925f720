"""Host ports: two pods that claim one port on one address do not go together."""

import pytest

from koordsched.cluster.ports import HostPorts, overlap

WEB = ("0.0.0.0", "TCP", 80)


@pytest.mark.parametrize(
    ("other", "together"),
    [
        (WEB, False),
        (("10.0.0.1", "TCP", 80), False),
        (("0.0.0.0", "TCP", 81), True),
        (("0.0.0.0", "UDP", 80), True),
        (("10.0.0.1", "UDP", 80), True),
    ],
)
def test_a_port_on_all_addresses(other, together):
    assert overlap([WEB], [other]) is overlap([other], [WEB]) is not together


@pytest.mark.parametrize(("address", "together"), [("10.0.0.1", False), ("10.0.0.2", True), ("0.0.0.0", False)])
def test_a_port_on_one_address(address, together):
    claimed = [("10.0.0.1", "TCP", 80), ("10.0.0.3", "TCP", 443)]
    assert overlap([(address, "TCP", 80)], claimed) is overlap(claimed, [(address, "TCP", 80)]) is not together


def test_the_most_pods_that_claim_one_address_of_a_node():
    ports = HostPorts()
    for row, address in ((0, "10.0.0.1"), (1, "10.0.0.1"), (1, "10.0.0.1"), (1, "10.0.0.2"), (2, "0.0.0.0")):
        ports.add(row, [(address, "TCP", 80)])
    ports.add(1, [WEB])
    assert [ports.claimed(row, "TCP", 80) for row in range(4)] == [1, 3, 1, 0]
    assert ports.claimed(1, "UDP", 80) == 0
