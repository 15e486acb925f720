"""The special claim as it is written, against what the real scheduler wrote (dra spec 3.10, cases 107 and 109)."""

import msgspec
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceClass, ResourceClaim
from koordsched.plugins.dynamicresources.extended import ServedResources, SpecialClaims, claim
from koordsched.plugins.dynamicresources.extended.hints import BY_OWNER, after_claim_gone, registration
from koordsched.plugins.shared.extendedresources import ClassesByResource
from koordsched.queue.hints import QueueingHint
from tests.parity.records import load
from tests.plugins.dynamicresources.extended.objects import recorded_names
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod


def written(bench, classes, item, on):
    """(the claim that is posted, the patch of the pod's status) for a node."""
    one = bench.pod(item)
    served = ServedResources(bench.cluster.table, classes)
    special = served.on_row(one.shape, bench.cluster.table.row_of[on])
    made = claim.requesting(claim.in_memory(one, "made-up"), special)
    return sent(claim.to_create(made)), sent(claim.pod_status("the-claim", special))


def sent(thing):
    return msgspec.json.decode(msgspec.json.encode(thing))


def states():
    """(record, pod, what was written about it) of the pods that got a special claim."""
    for name in recorded_names():
        record = load(name)
        pods = [item for item in record["objects"] if item["kind"] == "Pod"]
        pods += [step["create"] for step in record.get("steps", []) if step["create"]["kind"] == "Pod"]
        for item in pods:
            key = f"default/{item['metadata']['name']}"
            if record["expected"].get(key, {}).get("extendedResourceClaimStatus"):
                yield pytest.param(record, item, record["expected"][key], id=f"{name}-{item['metadata']['name']}")


@pytest.mark.parametrize("record, item, expected", list(states()))
def test_dra_case_107_claim_and_status_are_those_of_the_reference(record, item, expected):
    bench, classes = Bench(), ClassesByResource()
    made = record["objects"] + [step["create"] for step in record.get("steps", [])]
    for other in made:
        if other["kind"] == "Node":
            bench.add(other)
        elif other["kind"] == "DeviceClass":
            classes.class_changed(None, convert(other, DeviceClass))
    name = item["metadata"]["name"]
    item["metadata"]["uid"] = uid = f"<uid of default/{name}>"
    posted, status = written(bench, classes, item, expected["bound"])
    theirs = next(
        other
        for other in record["expected"]["objects"]
        if other["metadata"].get("generateName") and other["metadata"]["ownerReferences"][0]["uid"] == uid
    )
    assert posted["spec"] == theirs["spec"]
    for field in ("generateName", "namespace", "annotations", "ownerReferences"):
        assert posted["metadata"][field] == theirs["metadata"][field]
    assert posted.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert posted["metadata"].keys() == {"generateName", "namespace", "annotations", "ownerReferences"}
    shown = status["status"]["extendedResourceClaimStatus"]
    assert shown["requestMappings"] == expected["extendedResourceClaimStatus"]["requestMappings"]
    assert shown["resourceClaimName"] == "the-claim"


def test_every_record_is_about_a_claim_but_one():
    assert len({param.id.rpartition("-")[0] for param in states()}) == len(recorded_names()) - 1


def test_the_claim_of_a_cycle_has_no_requests_and_no_valid_name():
    one = Bench(node("n")).pod(pod("p", container(gpu=1)))
    made = claim.in_memory(one, "u")
    assert claim.is_in_memory(made)
    assert claim.is_special(made)
    assert made.spec.devices.requests == ()
    assert (made.metadata.namespace, made.metadata.uid) == ("default", "u")
    assert claim.owner_of(made) == (one.uid, "p")


def stored(name, pod_name="p", uid="uid-default-p", annotation="true", controller=True):
    """A claim as the API server has it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid, "controller": controller}
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {claim.ANNOTATION: annotation},
        "ownerReferences": [owner],
    }
    return convert({"metadata": metadata}, ResourceClaim)


@pytest.mark.parametrize(
    "other",
    [
        stored("c", annotation="yes"),
        stored("c", uid="another"),
        stored("c", pod_name="q"),
        stored("c", controller=False),
        convert({"metadata": {"name": "c", "namespace": "default"}}, ResourceClaim),
    ],
)
def test_dra_case_109_claims_of_others_are_not_found(other):
    one = Bench().pod(pod("p"))
    claims = SpecialClaims()
    claims.claim_changed(None, other)
    assert claims.of(one) is None
    own = stored("own")
    claims.claim_changed(None, own)
    assert claims.of(one) is own
    claims.claim_changed(own, None)
    assert claims.of(one) is None
    claims.claim_changed(other, None)
    assert len(claims) == 0


def test_dra_case_109_the_claim_of_an_earlier_attempt_is_found():
    one = Bench().pod(pod("p"))
    claims = SpecialClaims()
    first, second = stored("p-extended-resources-b"), stored("p-extended-resources-a")
    claims.claim_changed(None, first)
    claims.claim_changed(None, second)
    assert claims.of(one) is second
    changed = msgspec.structs.replace(second, metadata=msgspec.structs.replace(second.metadata, resource_version="2"))
    claims.claim_changed(second, changed)
    assert claims.of(one) is changed
    claims.claim_changed(changed, None)
    assert claims.of(one) is first


def test_b8_the_pod_is_queued_when_its_old_claim_is_gone():
    one, another = Bench().pod(pod("p")), Bench().pod(pod("q"))
    gone = stored("c")
    assert after_claim_gone(one, gone, None) is QueueingHint.QUEUE
    assert BY_OWNER.concerns(one, gone, None)
    assert after_claim_gone(another, gone, None) is QueueingHint.SKIP
    assert not BY_OWNER.concerns(another, gone, None)
    assert after_claim_gone(one, gone, gone) is QueueingHint.SKIP
    assert not BY_OWNER.concerns(one, gone, gone)
    assert after_claim_gone(one, stored("c", annotation="no"), None) is QueueingHint.SKIP
    assert registration("DynamicResources").event.label == "resource.k8s.io/ResourceClaimDelete"


def test_texts():
    one = Bench().pod(pod("p"))
    assert claim.not_found("n1") == "extended resource claim not found for node n1"
    assert claim.create_failed(one, "no") == "create claim for extended resources default/: no"
    assert claim.status_failed(one, "no") == "update pod default/p ExtendedResourceClaimStatus: no"


def test_types_of_what_is_written():
    bench = Bench(node("n1"))
    classes = ClassesByResource()
    classes.class_changed(
        None, convert({"metadata": {"name": "a"}, "spec": {"extendedResourceName": "ex.com/gpu"}}, DeviceClass)
    )
    posted, status = written(bench, classes, pod("p", container(gpu=2)), "n1")
    assert convert(posted, ResourceClaim).spec.devices.requests[0].exactly.count == 2
    assert convert(status, core.Pod).status.extended_resource_claim_status.resource_claim_name == "the-claim"
