"""What is written of a claim that others may have allocated meanwhile."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim, ResourceClaimConsumerReference
from koordsched.framework.handle import WriteConflict, WriteFailed
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed, ClaimWriter
from tests.plugins.dynamicresources.deviceworld import FINALIZER, allocated, claim
from tests.virtualtime import run

USER = ResourceClaimConsumerReference(resource="pods", name="p", uid="uid-default-p")
NO = WriteFailed("no")
GOING = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
OTHERS = "example.com/kept"


class Writes:
    """Notes what is written, and when. `outcomes` of patches, one after the other: None (done), an error, or what the
    claim is then; `reads`: the same of reads."""

    def __init__(self, *outcomes, reads=()):
        self._outcomes, self._reads = list(outcomes), list(reads)
        self.asked, self.times, self.shown, self.deleted = [], [], [], []

    async def patch(self, kind, thing, changes, subresource=None):
        self.asked.append(changes.get("status") or changes["metadata"])
        self.times.append(asyncio.get_running_loop().time())
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or thing

    async def read(self, kind, namespace, name):
        found = self._reads.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def delete(self, kind, meta):
        self.deleted.append(meta.uid)


def writer_to(writes):
    return ClaimWriter(writes, SimpleNamespace(wall=lambda: 0.0), timestamps=False, show=writes.shown.append)


def stored(*devices, users=(), **metadata):
    """A claim as the API server has it, protected."""
    status = allocated(*devices, users=users) if devices else None
    metadata.setdefault("finalizers", [FINALIZER])
    return convert(claim(status=status, **metadata), ResourceClaim)


def chosen():
    return stored("d0").status.allocation


def conflict():
    return WriteConflict("changed")


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
    writer = writer_to(writes)
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


def test_a_device_of_another_share_is_another_one():
    first, second = (convert(claim(status=allocated("d0", shareID=share)), ResourceClaim) for share in "xy")
    with pytest.raises(ClaimFailed):
        run(writer_to(Writes()).reserve(first, second.status.allocation, USER, shared=True))


@pytest.mark.parametrize(
    ("allocation", "step"),
    [(chosen(), "add allocation and reservation to claim default/c: changed"), (None, "add reservation to claim")],
)
def test_after_five_conflicts_it_fails(allocation, step):
    before = stored() if allocation is not None else stored("d0")
    writes = Writes(*(conflict() for _ in range(5)), reads=[before] * 4)
    with pytest.raises(ClaimFailed, match=step):
        run(writer_to(writes).reserve(before, allocation, USER))
    pauses = [later - earlier for earlier, later in zip(writes.times, writes.times[1:], strict=False)]
    assert pauses == pytest.approx([0.01] * 4)
    assert writes.shown == [before] * 4


def test_after_a_conflict_what_an_earlier_try_stored_is_enough():
    done = stored("d0", users=["p"])
    writes = Writes(conflict(), reads=[done])
    assert run(writer_to(writes).reserve(stored(), chosen(), USER)) is done
    assert len(writes.asked) == 1


@pytest.mark.parametrize(
    "found", [stored("d1", users=["p"]), stored("d0", users=["q"])], ids=["another device", "for another pod"]
)
def test_after_a_conflict_what_another_client_stored_is_not(found):
    writes = Writes(conflict(), reads=[found])
    with pytest.raises(ClaimFailed, match="got allocated elsewhere in the meantime"):
        run(writer_to(writes).reserve(stored(), chosen(), USER))


@pytest.mark.parametrize("allocation, what", [(chosen(), "allocation and reservation"), (None, "reservation")])
def test_the_text_says_which_step_failed(allocation, what):
    before = stored() if allocation is not None else stored("d0")
    with pytest.raises(ClaimFailed, match=f"^add {what} to claim default/c: no$"):
        run(writer_to(Writes(NO)).reserve(before, allocation, USER))


def test_a_claim_that_is_deleted_while_it_is_protected_gets_no_allocation():
    writes = Writes(stored(**GOING))
    with pytest.raises(ClaimFailed, match="got deleted in the meantime"):
        run(writer_to(writes).reserve(stored(finalizers=[]), chosen(), USER))
    assert writes.asked == [{"finalizers": [FINALIZER]}]


def test_what_others_protect_stays_protected_when_it_is_deleted():
    writes = Writes()
    run(writer_to(writes).delete(stored("d0", finalizers=[OTHERS, FINALIZER])))
    assert writes.asked == [{"finalizers": [OTHERS]}]
    assert writes.deleted == ["uid-claim-c"]


def test_another_claim_of_that_name_stays_as_it_is():
    writes = Writes(conflict(), reads=[stored("d1", uid="another")])
    run(writer_to(writes).delete(stored("d0")))
    assert len(writes.asked) == 1
    assert writes.deleted == ["uid-claim-c"], "which the API server compares"


def test_a_deletion_pauses_after_a_conflict():
    writes = Writes(conflict(), reads=[stored("d0")])
    run(writer_to(writes).delete(stored("d0")))
    assert writes.times[1] - writes.times[0] == pytest.approx(0.01)
