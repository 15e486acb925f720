"""Discovery, OpenAPI, tables, health, authentication and reviews."""

import pytest

from koordsched.fakecluster.auth import ADMIN, Authenticator, User
from koordsched.fakecluster.discovery import version_priority
from koordsched.fakecluster.table import human_duration
from tests.fakecluster.apiclient import PODS, Api, pod


@pytest.fixture
def api():
    return Api()


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def test_every_resource_is_found_both_ways(api):
    plain, aggregated = {}, {}
    groups = [("", "v1", "/api/v1")]
    groups += [
        (g["name"], v["version"], f"/apis/{v['groupVersion']}")
        for g in api.get("/apis")[1]["groups"]
        for v in g["versions"]
    ]
    for group, version, path in groups:
        for resource in api.get(path)[1]["resources"]:
            plain[(group, version, resource["name"])] = (resource["kind"], resource["namespaced"])
    for root in ("/api", "/apis"):
        response = api.response("GET", root, headers={"accept": AGGREGATED})
        assert response.headers["content-type"] == (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        )
        for item in api.get(root, headers={"accept": AGGREGATED})[1]["items"]:
            for version in item["versions"]:
                for r in version["resources"]:
                    key = (item["metadata"].get("name", ""), version["version"])
                    scoped = r["scope"] == "Namespaced"
                    aggregated[(*key, r["resource"])] = (r["responseKind"]["kind"], scoped)
                    for s in r.get("subresources", ()):
                        name = f"{r['resource']}/{s['subresource']}"
                        aggregated[(*key, name)] = (s["responseKind"]["kind"], scoped)
    assert aggregated == plain
    assert plain[("", "v1", "pods/eviction")] == ("Eviction", True)
    assert plain[("apps", "v1", "deployments/scale")] == ("Scale", True)


def test_versions_are_ordered_as_kubernetes_does():
    versions = ["foo1", "v1", "v10", "v2beta1", "v3alpha2", "v2", "v1beta10", "v11alpha1", "foo10"]
    assert sorted(versions, key=version_priority, reverse=True) == [
        "v10", "v2", "v1", "v2beta1", "v1beta10", "v11alpha1", "v3alpha2", "foo10", "foo1",
    ]  # fmt: skip


def test_openapi_tells_what_kubectl_asks(api):
    index = api.get("/openapi/v3")[1]["paths"]
    path = index["apis/apps/v1"]["serverRelativeURL"].partition("?")[0]
    document = api.get(path)[1]
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "fieldValidation" in [p["name"] for p in patch["parameters"]]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    spec = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    references = str(document).count("#/definitions/")
    assert references == 0
    assert "io.k8s.api.core.v1.Pod" in api.get("/openapi/v2")[1]["definitions"]
    protobuf = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    assert api.get("/openapi/v2", headers=protobuf)[0] == 406


def test_version_and_health(api):
    assert api.get("/version")[1]["gitVersion"].startswith("v1.36")
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        assert api.response("GET", path).body == b"ok"
    assert b"[+]etcd ok" in api.response("GET", "/readyz?verbose=1").body
    assert api.response("GET", "/readyz/nonsense").status == 404
    api.server.ready = False
    assert api.response("GET", "/readyz").status == 500
    assert api.response("GET", "/livez").status == 200


DURATIONS = [
    (0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (599, "9m59s"), (3600, "60m"), (10800, "3h"),
    (12000, "3h20m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"), (691200, "8d"),
    (63072000, "2y"),
]  # fmt: skip


@pytest.mark.parametrize("seconds, text", DURATIONS)
def test_durations_read_as_kubectl_prints_them(seconds, text):
    assert human_duration(seconds) == text


TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io"}


def container(**status):
    return {"containerStatuses": [{"name": "c", **status}]}


POD_STATUS = [
    ({"phase": "Running", **container(ready=True, state={"running": {}})}, "Running", "1/1"),
    ({"phase": "Pending", **container(state={"waiting": {"reason": "ErrImagePull"}})}, "ErrImagePull", "0/1"),
    ({"phase": "Succeeded", **container(state={"terminated": {"reason": "Completed"}})}, "Completed", "0/1"),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "0/1"),
    ({"phase": "Failed", **container(state={"terminated": {"exitCode": 3}})}, "ExitCode:3", "0/1"),
]


@pytest.mark.parametrize("status, word, ready", POD_STATUS)
def test_the_status_of_pods(api, status, word, ready):
    api.post(PODS, pod(nodeName="n1"))
    api.merge(f"{PODS}/p/status", {"status": {**status, "podIP": "10.0.0.1"}})
    api.clock.time += 200
    (row,) = api.get(PODS, headers=TABLE)[1]["rows"]
    assert row["cells"] == ["p", ready, word, "0", "3m20s", "10.0.0.1", "n1", "<none>", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


def test_every_kind_has_a_table(api):
    api.post(PODS, pod())
    for resource in api.registry.resources():
        if "list" not in resource.verbs:
            continue
        path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        status, table = api.get(f"{path}/{resource.plural}?includeObject=Object", headers=TABLE)
        assert (status, table["kind"]) == (200, "Table"), resource.plural
        widths = {len(r["cells"]) for r in table["rows"]}
        assert widths <= {len(table["columnDefinitions"])}


def test_partial_metadata(api):
    api.post(PODS, pod(labels={"a": "b"}))
    accept = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    (item,) = api.get(PODS, headers=accept)[1]["items"]
    assert (item["kind"], item["metadata"]["labels"], "spec" in item) == ("PartialObjectMetadata", {"a": "b"}, False)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_tokens():
    api = Api(Authenticator({"secret": ADMIN}))
    for headers in ({}, bearer("wrong"), {"authorization": "Basic secret"}):
        status, body = api.get(PODS, headers=headers)
        assert (status, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")
    assert api.get(PODS, headers=bearer("secret"))[0] == 200
    assert api.response("GET", "/readyz").status == 200


ROLE = "/apis/rbac.authorization.k8s.io/v1"
ACCESS = [
    ("system:serviceaccount:default:s", "get", "", "pods", "", True),
    ("system:serviceaccount:default:s", "delete", "", "pods", "", False),
    ("system:serviceaccount:default:s", "create", "", "pods", "binding", True),
    ("system:serviceaccount:default:s", "create", "", "pods", "eviction", False),
    ("system:serviceaccount:default:s", "update", "coordination.k8s.io", "leases", "", True),
    ("system:serviceaccount:other:s", "get", "", "pods", "", False),
]


def test_reviews_follow_roles_and_tokens():
    user = User("system:serviceaccount:default:s", ("system:serviceaccounts",))
    api = Api(Authenticator({"admin": ADMIN, "token": user}))

    def post(path, body, token="admin"):
        status, answer = api.post(path, body, headers=bearer(token))
        assert status == 201, answer
        return answer

    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    ]
    post(f"{ROLE}/clusterroles", {"metadata": {"name": "system:reader"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "s", "namespace": "default"}
    reference = {"kind": "ClusterRole", "name": "system:reader"}
    post(f"{ROLE}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]})
    lease = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]
    post(f"{ROLE}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": lease})
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [subject]}
    post(f"{ROLE}/namespaces/default/rolebindings", binding)
    for name, verb, group, resource, subresource, allowed in ACCESS:
        attributes = {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default",
        }  # fmt: skip
        spec = {"user": name, "resourceAttributes": attributes}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert post(path, {"spec": spec})["status"]["allowed"] == allowed, (name, verb, resource, subresource)
        if name == user.name:
            own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            body = {"spec": {"resourceAttributes": attributes}}
            assert post(own, body, "token")["status"]["allowed"] == allowed
            assert post(own, body)["status"]["allowed"]
    review = "/apis/authentication.k8s.io/v1/tokenreviews"
    known = post(review, {"spec": {"token": "token"}})["status"]
    assert (known["authenticated"], known["user"]["username"]) == (True, user.name)
    assert "authenticated" not in post(review, {"spec": {"token": "none"}})["status"]
    issued = post("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})["status"]["token"]
    assert (
        post(review, {"spec": {"token": issued}})["status"]["user"]["username"]
        == "system:serviceaccount:default:default"
    )
