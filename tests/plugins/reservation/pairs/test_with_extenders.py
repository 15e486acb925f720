"""Reservations and HTTP extenders: a reserve pod is asked for like a pod, and is not bound by them."""

from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from tests.extender.service import Service, everything, extender, names_of, serving
from tests.plugins.dynamicresources.deviceworld import claim, device_class, slice_of
from tests.plugins.reservation.pairs.cluster import AFFINITY, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.plugins.reservation.test_operating_mode import PROFILE, acting
from tests.waiting import until


def only(*names):
    """A filter's answer that leaves these nodes."""
    return lambda body: {
        "NodeNames": [name for name in names_of(body) if name in names],
        "FailedNodes": {name: "not here" for name in names_of(body) if name not in names},
    }


async def test_an_extender_says_where_a_reservation_goes_and_does_not_bind_it():
    service = Service(filter=only("n2"), prioritize=[], bind={})
    there = PairCluster(("n1", "n2"))
    async with serving(service):
        config = configuration(profile("Reservation"), extenders=[extender(service, "filter", "prioritize", "bind")])
        async with scheduling(there, config):
            there.reservation(template=template())
            await until(lambda: there.phase() == "Available", "the Reservation")
            assert there.status()["nodeName"] == "n2"
            assert service.requests("bind") == []
            (asked,) = service.requests("filter")
            assert asked["Pod"]["metadata"]["name"] == there.uid()


async def test_an_extender_that_refuses_the_node_of_a_reservation():
    service = Service(filter=everything)
    there = PairCluster(("n1", "n2"))
    async with serving(service):
        config = configuration(profile("Reservation"), extenders=[extender(service, "filter")])
        async with scheduling(there, config):
            there.reservation(template=template(nodeName="n1"))
            await until(lambda: there.phase() == "Available", "the Reservation")
            service.answers["filter"] = only("n2")
            there.put("must", annotations=AFFINITY)
            await until(lambda: there.said("must"), "the refusal")
            assert "not here" in there.said("must")
            assert [names_of(body) for body in service.requests("filter")][-1] == ["n1"]
            there.put("may")
            await until(lambda: there.where("may") == "n2", "the binding")
            assert there.owners() == []


async def test_a_reservation_that_an_extender_keeps_out_says_why():
    service = Service(filter=only())
    there = PairCluster()
    async with serving(service):
        config = configuration(profile("Reservation"), extenders=[extender(service, "filter")])
        async with scheduling(there, config):
            there.reservation(template=template())
            await until(lambda: there.told(), "the condition")
            assert there.told().startswith("0/1 nodes are available: 1 not here.")


async def test_which_reservation_a_pod_uses_is_decided_before_its_claims_are_allocated():
    """Two pods act as such, and one stays. The owner has room only in the place of the other, and a claim, which is in
    flight when that counts.
    """
    service = Service(filter=everything)
    there = PairCluster(("n1", "n2"), cpu="4")
    for thing in (device_class(), slice_of("n1", "d0"), claim("c")):
        there.insert(thing)
    for name, at in (("acts", "n1"), ("stays", "n2")):
        acts = acting("3", on=at)
        acts["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        acts["spec"]["schedulerName"] = "default-scheduler"
        there.insert(acts)
    async with serving(service):
        # As Koordinator's profile has it, the plugin comes after DynamicResources in Reserve.
        late = {"schedulerName": "default-scheduler", **PROFILE}
        config = configuration(late, extenders=[extender(service, "filter")])
        async with scheduling(there, config):
            claims = [{"name": "c", "resourceClaimName": "c"}]
            there.put("owner", requests={"cpu": "2", "memory": "1Gi"}, resourceClaims=claims)
            await until(lambda: there.where("owner") == "n1", "the binding")
            notes = there.get("Pod", "owner")["metadata"]["annotations"]
            assert '"name":"acts"' in notes[RESERVATION_ALLOCATED].replace(" ", "")
