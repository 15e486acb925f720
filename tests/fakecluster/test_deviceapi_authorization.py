"""Parts of a claim's status need permissions of their own."""

import pytest

from koordsched.fakecluster.auth import ADMIN, Authenticator, User
from koordsched.fakecluster.release import Release
from tests.fakecluster.apiclient import Api
from tests.fakecluster.deviceobjects import CLAIMS, DRIVER, allocation, claim, consumer, result
from tests.fakecluster.test_deviceapi_claims import refusals

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SCHEDULER = User("system:serviceaccount:kube-system:scheduler")
MERGE = "application/merge-patch+json"


def headers(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def api():
    made = Api(Authenticator({"admin": ADMIN, "scheduler": SCHEDULER}))
    made.post(CLAIMS, claim(), headers=headers("admin"))
    return made


def allow(api, *rules):
    subject = {"kind": "ServiceAccount", "name": "scheduler", "namespace": "kube-system"}
    reference = {"kind": "ClusterRole", "name": "scheduler"}
    rules = [{"apiGroups": ["resource.k8s.io"], **rule} for rule in rules]
    for plural, body in (
        ("clusterroles", {"rules": rules}),
        ("clusterrolebindings", {"roleRef": reference, "subjects": [subject]}),
    ):
        made = {"metadata": {"name": "scheduler"}, **body}
        assert api.post(f"{RBAC}/{plural}", made, headers=headers("admin"))[0] == 201


def patch(api, token="scheduler", **status):
    return api.call("PATCH", f"{CLAIMS}/c/status", {"status": status}, MERGE, headers(token))


def put(api, **status):
    stored = api.get(f"{CLAIMS}/c", headers=headers("admin"))[1]
    return api.put(f"{CLAIMS}/c/status", {**stored, "status": status}, headers=headers("scheduler"))


@pytest.mark.parametrize(("write", "verb"), [(patch, "patch"), (put, "update")])
def test_allocations_and_reservations_are_bindings(api, write, verb):
    text = (
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
        f'verb="{verb}" permission: resourceclaims.resource.k8s.io is forbidden: User "{SCHEDULER.name}" cannot {verb} '
        'resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
    )
    assert refusals(write(api, allocation=allocation(), reservedFor=[consumer()])) == [("status", text)]
    allow(api, {"resources": ["resourceclaims/binding"], "verbs": [verb]})
    assert write(api, allocation=allocation(), reservedFor=[consumer()])[0] == 200


def status_of(driver=DRIVER, **more):
    return {"driver": driver, "pool": "node-0", "device": "gpu-0", **more}


def test_drivers_write_about_their_own_devices(api):
    granted = allocation(result(), result(driver="nic.example.com"))
    assert patch(api, "admin", allocation=granted)[0] == 200
    verb, resource = "arbitrary-node:patch", "resourceclaims/driver"
    allow(api, {"resources": [resource], "verbs": [verb], "resourceNames": [DRIVER]})
    assert patch(api, devices=[status_of(data={"a": 1})])[0] == 200
    text = (
        f'Forbidden: changing status.devices requires resource="{resource}", verb="[{verb}]" permission: '
        f'resourceclaims.resource.k8s.io "nic.example.com" is forbidden: User "{SCHEDULER.name}" cannot {verb} '
        f'resource "{resource}" in API group "resource.k8s.io" in the namespace "default"'
    )
    both = [status_of(data={"a": 2}), status_of("nic.example.com", data={})]
    assert refusals(patch(api, devices=both)) == [("status.devices", text)]
    # Unchanged ones of other drivers are no matter.
    assert patch(api, "admin", devices=both)[0] == 200
    assert patch(api, devices=[both[0] | {"data": {"a": 3}}, both[1]])[0] == 200
    assert [field for field, _ in refusals(patch(api, devices=[both[0]]))] == ["status.devices"]


def test_what_changes_nothing_needs_no_permission(api):
    assert patch(api, "admin", allocation=allocation())[0] == 200
    assert patch(api, allocation=allocation())[0] == 200


def test_earlier_releases_know_no_such_permissions(api):
    api.registry.be_like(Release(35))
    assert patch(api, allocation=allocation())[0] == 200
