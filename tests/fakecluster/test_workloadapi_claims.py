"""Claims of PodGroups and of the templates of Workloads: what the API server takes, and what it refuses."""

import pytest

from koordsched.fakecluster.workloadapi import GROUP, VERSION, serve_workload_api
from tests.fakecluster.apiclient import Api
from tests.fakecluster.test_deviceapi_claims import LABEL_TEXT, refusals

GROUPS = f"/apis/{GROUP}/{VERSION}/namespaces/default/podgroups"
WORKLOADS = f"/apis/{GROUP}/{VERSION}/namespaces/default/workloads"
ONE_OF = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
NOT_BOTH = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
POLICY = {"schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest.fixture
def api():
    served = Api()
    serve_workload_api(served.registry)
    return served


def named(number):
    return {"name": f"e{number}", "resourceClaimName": f"c{number}"}


def templated(name="e", template="t"):
    return {"name": name, "resourceClaimTemplateName": template}


def group(*entries):
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {**POLICY, "resourceClaims": list(entries)},
    }


def workload(*entries):
    spec = {"podGroupTemplates": [{"name": "a", **POLICY}, {"name": "b", **POLICY, "resourceClaims": list(entries)}]}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}


WRONG = [
    ([named(at) for at in range(5)], [("", "Too many: 5: must have at most 4 items")]),
    ([{"resourceClaimName": "c"}], [("[0].name", "Required value")]),
    ([named(1), named(1)], [("[1].name", 'Duplicate value: "e1"')]),
    ([templated("E")], [("[0].name", f'Invalid value: "E": {LABEL_TEXT}')]),
    ([{"name": "e"}], [("[0]", f'Invalid value: {{"name":"e"}}: {ONE_OF}')]),
    (
        [{**named(1), "resourceClaimTemplateName": "t"}],
        [
            (
                "[0]",
                'Invalid value: {"name":"e1","resourceClaimName":"c1","resourceClaimTemplateName":"t"}: ' + NOT_BOTH,
            )
        ],
    ),
]


@pytest.mark.parametrize(("entries", "wrong"), WRONG)
def test_entries_that_are_wrong_are_refused(api, entries, wrong):
    for path, body, field in (
        (GROUPS, group(*entries), "spec.resourceClaims"),
        (WORKLOADS, workload(*entries), "spec.podGroupTemplates[1].resourceClaims"),
    ):
        assert refusals(api.post(path, body)) == [(f"{field}{where}", text) for where, text in wrong]


def test_up_to_four_entries_are_taken_and_stay(api):
    entries = [*(named(at) for at in range(3)), templated()]
    status, made = api.post(GROUPS, group(*entries))
    assert (status, made["spec"]["resourceClaims"]) == (201, entries)
    changed = {"spec": {"resourceClaims": entries[:3]}}
    ((field, text),) = refusals(api.merge(f"{GROUPS}/g", changed))
    assert field == "spec.resourceClaims"
    assert text.endswith("field is immutable")
    assert api.merge(f"{GROUPS}/g", {"metadata": {"labels": {"a": "b"}}})[0] == 200
    assert api.post(WORKLOADS, workload(*entries))[0] == 201


def test_a_status_names_claims_of_entries_once(api):
    api.post(GROUPS, group(templated("e"), templated("f")))

    def says(*statuses):
        return api.merge(f"{GROUPS}/g/status", {"status": {"resourceClaimStatuses": list(statuses)}})

    field = "status.resourceClaimStatuses"
    unknown = 'Invalid value: "x": must match the name of an entry in `spec.resourceClaims`'
    assert refusals(says({"name": "x", "resourceClaimName": "c"})) == [(f"{field}[0].name", unknown)]
    twice = {"name": "e", "resourceClaimName": "c"}
    assert refusals(says(twice, twice)) == [(f"{field}[1].name", 'Duplicate value: "e"')]
    ((where, text),) = refusals(says({"name": "e", "resourceClaimName": "C"}))
    assert where == f"{field}[0].name"
    assert text.startswith('Invalid value: "C": a lowercase RFC 1123 subdomain')
    status, made = says(twice, {"name": "f"})
    assert (status, made["status"]["resourceClaimStatuses"]) == (200, [twice, {"name": "f"}])
    # Other changes of the status leave it as it is.
    condition = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    status, made = api.merge(f"{GROUPS}/g/status", {"status": {"conditions": [condition]}})
    assert (status, made["status"]["resourceClaimStatuses"]) == (200, [twice, {"name": "f"}])
