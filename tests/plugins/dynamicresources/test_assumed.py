"""The assume cache of claims (dra spec 3.3, case 90)."""

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.objects import Store
from koordsched.plugins.dynamicresources.assumed import AssumedClaims, NotAssumed
from tests.plugins.dynamicresources.deviceworld import claim


def at(version, name="c", **more):
    return convert(claim(name, resourceVersion=str(version), **more), ResourceClaim)


def versions(claims):
    latest, seen = claims.get("default", "c"), claims.seen("default", "c")
    return latest.metadata.resource_version, seen.metadata.resource_version


@pytest.fixture
def store():
    return Store(RESOURCE_CLAIMS)


def test_dra_case_90_assumed_claims(store):
    claims = AssumedClaims(store)
    heard = []
    claims.subscribe(
        lambda old, new: heard.append((old and old.metadata.resource_version, new.metadata.resource_version))
    )
    store.upsert(at(5))
    with pytest.raises(NotAssumed, match=r'^ResourceClaim "default/c" is out of sync \(stored: 5, assume: 4\)$'):
        claims.assume(at(4))
    claims.assume(at(5))
    claims.assume(at(6))
    assert versions(claims) == ("6", "5")
    store.upsert(at(6))
    assert versions(claims) == ("6", "5")
    claims.restore("default", "c")
    assert versions(claims) == ("5", "5")
    claims.restore("default", "c")
    store.upsert(at(7))
    assert versions(claims) == ("7", "7")
    assert heard == [(None, "5"), ("5", "5"), ("5", "6"), ("6", "5"), ("5", "7")]
    with pytest.raises(NotAssumed, match=r'^could not find ResourceClaim "default/unknown"$'):
        claims.assume(at(1, "unknown"))


def test_what_is_deleted_is_gone_whatever_was_assumed(store):
    claims = AssumedClaims(store)
    store.upsert(at(5))
    claims.assume(at(9))
    store.delete("default", "c")
    assert claims.get("default", "c") is None
    # Another claim of the name is newer, whatever its version says.
    store.upsert(at(3, uid="another"))
    assert versions(claims) == ("3", "3")
    store.upsert(at(2, uid="a third"))
    assert versions(claims) == ("2", "2")


def test_states_without_versions_are_taken_as_they_come(store):
    claims = AssumedClaims(store)
    for count in (1, 2):
        store.upsert(convert(claim(count=count), ResourceClaim))
        assert claims.get("default", "c").spec.devices.requests[0].exactly.count == count


def test_after_the_server_went_back_in_time_what_it_shows_counts(store):
    claims = AssumedClaims(store)
    store.upsert(at(5))
    claims.assume(at(6))
    store.upsert(at(3), anew=True)
    assert versions(claims) == ("3", "3")
    store.upsert(at(2))
    assert versions(claims) == ("3", "3")
    store.upsert(at(3, count=2), anew=True)
    assert claims.get("default", "c").spec.devices.requests[0].exactly.count == 2
