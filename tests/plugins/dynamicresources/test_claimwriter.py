"""What is written of a claim that others may have allocated meanwhile."""

from types import SimpleNamespace

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim, ResourceClaimConsumerReference
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed, ClaimWriter
from tests.plugins.dynamicresources.deviceworld import allocated, claim


class Writes:
    """Notes what is written."""

    def __init__(self):
        self.asked = []

    async def patch(self, kind, thing, changes, subresource=None):
        self.asked.append(changes["status"])
        return thing


@pytest.mark.parametrize(
    ("stored", "shared", "same"),
    [
        (allocated("d0", "d1"), True, True),
        (allocated("d0", "d1"), False, False),
        (allocated("d1", "d0"), True, False),
        (allocated("d0"), True, False),
        (allocated("d0", "d1", where="n2"), True, False),
        (allocated("d0", "d1", request="other"), True, False),
        (allocated("d0", "d1", shareID="x"), True, False),
    ],
)
async def test_a_shared_claim_is_reserved_if_it_has_the_very_devices(stored, shared, same):
    """Another pod of the group may have stored them, but no other ones, and no other client."""
    writes = Writes()
    writer = ClaimWriter(writes, SimpleNamespace(wall=lambda: 0.0), timestamps=False, show=lambda newest: None)
    chosen = convert(claim(status=allocated("d0", "d1")), ResourceClaim).status.allocation
    newest = convert(claim(status=stored), ResourceClaim)
    user = ResourceClaimConsumerReference(resource="pods", name="p", uid="u")
    if same:
        await writer.reserve(newest, chosen, user, shared=shared)
        (status,) = writes.asked
        assert list(status) == ["reservedFor"]
        assert [each["uid"] for each in status["reservedFor"]] == ["u"]
        return
    with pytest.raises(ClaimFailed, match="claim default/c got allocated elsewhere in the meantime"):
        await writer.reserve(newest, chosen, user, shared=shared)
    assert writes.asked == []
