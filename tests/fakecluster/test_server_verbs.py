"""Create, get, update, patch and delete, and the exact bodies of refusals."""

import pytest

from tests.fakecluster.apiclient import CONFIG_MAPS, NOW, PODS, Api, config_map, pod


@pytest.fixture
def api():
    return Api()


def test_create_completes_metadata(api):
    status, made = api.post(CONFIG_MAPS, config_map("a", {"x": "1"}, k="v"))
    assert status == 201
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"], meta["creationTimestamp"]) == ("a", "default", NOW)
    assert len(meta["uid"]) == 36
    assert meta["uid"][14] == "4"
    assert int(meta["resourceVersion"]) > 1
    assert list(made) == ["apiVersion", "kind", "metadata", "data"]
    assert api.get(f"{CONFIG_MAPS}/a") == (200, made)


def test_generated_names_are_distinct_and_repeatable():
    def names():
        api = Api()
        body = {"metadata": {"generateName": "web-"}, "data": {}}
        return [api.post(CONFIG_MAPS, body)[1]["metadata"]["name"] for _ in range(20)]

    first = names()
    assert len(set(first)) == 20
    assert all(n.startswith("web-") and len(n) == 9 for n in first)
    assert names() == first


REFUSALS = [
    (
        "absent object",
        ("GET", f"{CONFIG_MAPS}/nope", None),
        (404, "NotFound", 'configmaps "nope" not found', {"name": "nope", "kind": "configmaps"}),
    ),
    (
        "absent object of a group",
        ("GET", "/apis/apps/v1/namespaces/default/deployments/nope", None),
        (
            404,
            "NotFound",
            'deployments.apps "nope" not found',
            {"name": "nope", "group": "apps", "kind": "deployments"},
        ),
    ),
    (
        "taken name",
        ("POST", CONFIG_MAPS, config_map("taken")),
        (409, "AlreadyExists", 'configmaps "taken" already exists', {"name": "taken", "kind": "configmaps"}),
    ),
    (
        "absent namespace",
        ("POST", "/api/v1/namespaces/none/configmaps", config_map("a")),
        (404, "NotFound", 'namespaces "none" not found', {"name": "none", "kind": "namespaces"}),
    ),
    (
        "namespaces differ",
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "other"}}),
        (
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
            None,
        ),
    ),
    (
        "version set on create",
        ("POST", CONFIG_MAPS, {"metadata": {"name": "a", "resourceVersion": "7"}}),
        (400, "BadRequest", "resourceVersion should not be set on objects to be created", None),
    ),
    (
        "stale version",
        ("PUT", f"{CONFIG_MAPS}/taken", {"metadata": {"name": "taken", "resourceVersion": "1"}}),
        (
            409,
            "Conflict",
            'Operation cannot be fulfilled on configmaps "taken": the object has been modified; '
            "please apply your changes to the latest version and try again",
            {"name": "taken", "kind": "configmaps"},
        ),
    ),
    (
        "wrong method",
        ("POST", f"{CONFIG_MAPS}/taken", {}),
        (405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}),
    ),
    (
        "unknown kind",
        ("GET", "/apis/nope.io/v1/things", None),
        (404, "NotFound", "the server could not find the requested resource", None),
    ),
    (
        "no name",
        ("POST", CONFIG_MAPS, {"metadata": {}}),
        (
            422,
            "Invalid",
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
            {
                "kind": "ConfigMap",
                "causes": [
                    {
                        "reason": "FieldValueRequired",
                        "message": "Required value: name or generateName is required",
                        "field": "metadata.name",
                    }
                ],
            },
        ),
    ),
    (
        "wrong type",
        ("POST", PODS, {"metadata": {"name": "x"}, "spec": {"containers": [{"name": 5}]}}),
        (
            400,
            "BadRequest",
            'Pod in version "v1" cannot be handled as a Pod: Expected `str`, got `int` - at `spec.containers[0].name`',
            None,
        ),
    ),
]


@pytest.mark.parametrize("request_, expected", [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_refusals(api, request_, expected):
    api.post(CONFIG_MAPS, config_map("taken"))
    code, reason, message, details = expected
    status, body = api.call(*request_)
    assert status == code
    wanted = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if details:
        wanted["details"] = details
    assert body == wanted


def test_not_json_is_told(api):
    status, body = api.post(CONFIG_MAPS, b'{"metadata":')
    assert (status, body["reason"]) == (400, "BadRequest")
    status, body = api.post(CONFIG_MAPS, b"x", content_type="text/csv")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: [", "couldn't parse the body: while parsing"),
        (b"\xff", "couldn't parse the body: 'utf-8' codec can't decode byte 0xff"),
        (b"- " * 100_000, "couldn't parse the body: nested more than 1000 levels deep"),
        (b"{a: " * 100_000, "couldn't parse the body: nested more than 1000 levels deep"),
        (b"a: &a [*a]", "couldn't parse the body: Recursion limit reached"),
    ],
)
def test_yaml_that_cannot_be_read_is_told(api, text, message):
    status, body = api.post(CONFIG_MAPS, text, content_type="application/yaml")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].startswith(message)


FIELD_VALIDATION = [
    ("Strict", 400, None),
    ("Warn", 201, '299 - "unknown field \\"spec.bogus\\""'),
    ("Ignore", 201, None),
]


@pytest.mark.parametrize("mode, status, warning", FIELD_VALIDATION)
def test_unknown_fields(api, mode, status, warning):
    response = api.response("POST", f"{PODS}?fieldValidation={mode}", pod(bogus=1))
    assert response.status == status
    assert response.headers.get("warning") == warning
    assert (b"bogus" in response.body) == (mode == "Strict")


def test_optimistic_locking_and_unconditional_updates(api):
    _, first = api.post(CONFIG_MAPS, config_map("a", k="1"))
    second = {**first, "data": {"k": "2"}}
    status, stored = api.put(f"{CONFIG_MAPS}/a", second)
    assert (status, stored["data"]) == (200, {"k": "2"})
    assert api.put(f"{CONFIG_MAPS}/a", second)[0] == 409
    assert api.put(f"{CONFIG_MAPS}/a", config_map("a", k="3"))[1]["data"] == {"k": "3"}


def test_an_update_without_change_writes_nothing(api):
    _, made = api.post(CONFIG_MAPS, config_map("a", k="1"))
    before = api.registry.store.rv
    assert api.put(f"{CONFIG_MAPS}/a", made) == (200, made)
    assert api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "1"}}) == (200, made)
    assert api.registry.store.rv == before


def test_fixed_metadata_survives_updates(api):
    _, made = api.post(CONFIG_MAPS, config_map("a"))
    changed = {"metadata": {"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"b": "c"}}}
    _, stored = api.put(f"{CONFIG_MAPS}/a", changed)
    assert stored["metadata"]["uid"] == made["metadata"]["uid"]
    assert stored["metadata"]["creationTimestamp"] == NOW
    assert stored["metadata"]["labels"] == {"b": "c"}


def test_generation_counts_changes_of_the_spec_alone(api):
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert api.post(path, body)[1]["metadata"]["generation"] == 1
    assert api.merge(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})[1]["metadata"]["generation"] == 1
    assert api.merge(f"{path}/d/status", {"status": {"replicas": 1}})[1]["metadata"]["generation"] == 1
    assert api.merge(f"{path}/d", {"spec": {"replicas": 4}})[1]["metadata"]["generation"] == 2
    _, scale = api.get(f"{path}/d/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 4}, {"replicas": 1, "selector": "a=b"})
    assert api.merge(f"{path}/d/scale", {"spec": {"replicas": 2}})[1]["spec"] == {"replicas": 2}
    assert api.get(f"{path}/d")[1]["metadata"]["generation"] == 3


def test_status_and_spec_are_written_apart(api):
    api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}})
    both = {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}
    main = api.merge("/api/v1/nodes/n", both)[1]
    assert (main["spec"], "phase" in main["status"]) == ({"unschedulable": True}, False)
    both["spec"]["unschedulable"] = False
    below = api.merge("/api/v1/nodes/n/status", both)[1]
    assert (below["spec"]["unschedulable"], below["status"]["phase"]) == (True, "Running")


def test_dry_run_changes_nothing(api):
    before = api.registry.store.rv
    status, made = api.post(f"{PODS}?dryRun=All", pod())
    assert (status, made["status"]["phase"]) == (201, "Pending")
    assert api.get(f"{PODS}/p")[0] == 404
    api.post(PODS, pod())
    assert api.merge(f"{PODS}/p?dryRun=All", {"metadata": {"labels": {"a": "b"}}})[1]["metadata"]["labels"] == {
        "a": "b"
    }
    assert api.delete(f"{PODS}/p?dryRun=All")[0] == 200
    assert api.get(f"{PODS}/p")[1]["metadata"].get("labels") is None
    assert api.registry.store.rv == before + 1


DELETES = [
    ("wrong uid", {"preconditions": {"uid": "other"}}, 409),
    ("wrong version", {"preconditions": {"resourceVersion": "1"}}, 409),
    ("bad policy", {"propagationPolicy": "Sideways"}, 422),
    ("negative grace", {"gracePeriodSeconds": -1}, 422),
    ("plain", None, 200),
]


@pytest.mark.parametrize("options, code", [d[1:] for d in DELETES], ids=[d[0] for d in DELETES])
def test_delete_preconditions(api, options, code):
    _, made = api.post(CONFIG_MAPS, config_map("a"))
    status, body = api.delete(f"{CONFIG_MAPS}/a", options)
    assert status == code
    assert api.get(f"{CONFIG_MAPS}/a")[0] == (404 if code == 200 else 200)
    if code == 200:
        uid = made["metadata"]["uid"]
        assert body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
        assert body["status"] == "Success"


def test_finalizers_hold_an_object_until_the_last_is_gone(api):
    body = config_map("a")
    body["metadata"]["finalizers"] = ["ex.com/one", "ex.com/two"]
    api.post(CONFIG_MAPS, body)
    status, held = api.delete(f"{CONFIG_MAPS}/a")
    assert (status, held["metadata"]["deletionTimestamp"]) == (200, NOW)
    status, refused = api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["ex.com/three"]}})
    assert (status, refused["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    assert api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["ex.com/two"]}})[0] == 200
    assert api.get(f"{CONFIG_MAPS}/a")[0] == 200
    assert api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})[0] == 200
    assert api.get(f"{CONFIG_MAPS}/a")[0] == 404


@pytest.mark.parametrize("policy, finalizers", [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])])
def test_propagation_policies_leave_the_work_to_the_collector(api, policy, finalizers):
    api.post(CONFIG_MAPS, config_map("a"))
    _, held = api.delete(f"{CONFIG_MAPS}/a?propagationPolicy={policy}")
    assert held["metadata"]["finalizers"] == finalizers
    assert held["metadata"]["deletionTimestamp"] == NOW


GRACE = [
    ("unassigned pods go at once", {}, None, True, None),
    ("the pod's own grace period", {"nodeName": "n", "terminationGracePeriodSeconds": 45}, None, False, 45),
    ("the request's", {"nodeName": "n"}, 7, False, 7),
    ("the default", {"nodeName": "n"}, None, False, 30),
    ("at once when asked", {"nodeName": "n"}, 0, True, None),
]


@pytest.mark.parametrize("spec, requested, gone, grace", [g[1:] for g in GRACE], ids=[g[0] for g in GRACE])
def test_pods_die_gracefully(api, spec, requested, gone, grace):
    api.post(PODS, pod(**spec))
    status, body = api.delete(f"{PODS}/p", None if requested is None else {"gracePeriodSeconds": requested})
    assert (status, body["kind"]) == (200, "Pod")
    assert (api.get(f"{PODS}/p")[0] == 404) == gone
    assert body["metadata"].get("deletionGracePeriodSeconds") == grace


def test_a_later_delete_may_only_shorten_the_grace(api):
    api.post(PODS, pod(nodeName="n"))
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})
    assert api.delete(f"{PODS}/p", {"gracePeriodSeconds": 40})[1]["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})[1]["metadata"]["deletionGracePeriodSeconds"] == 5
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert api.get(f"{PODS}/p")[0] == 404


def test_collections_are_deleted_by_selector(api):
    for name, team in (("a", "x"), ("b", "y"), ("c", "x")):
        api.post(CONFIG_MAPS, config_map(name, {"team": team}))
    status, deleted = api.delete(f"{CONFIG_MAPS}?labelSelector=team%3Dx".replace("%3D", "="))
    assert (status, [i["metadata"]["name"] for i in deleted["items"]]) == (200, ["a", "c"])
    assert [i["metadata"]["name"] for i in api.get(CONFIG_MAPS)[1]["items"]] == ["b"]


def test_nothing_is_created_in_a_terminating_namespace(api):
    api.post("/api/v1/namespaces", {"metadata": {"name": "old"}})
    _, held = api.delete("/api/v1/namespaces/old")
    assert (held["status"]["phase"], held["spec"]["finalizers"]) == ("Terminating", ["kubernetes"])
    status, body = api.post("/api/v1/namespaces/old/configmaps", config_map("a"))
    assert (status, body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert api.put("/api/v1/namespaces/old/finalize", {**held, "spec": {"finalizers": []}})[0] == 200
    assert api.get("/api/v1/namespaces/old")[0] == 404


def test_events_have_two_forms_and_one_storage(api):
    new = {
        "metadata": {"name": "e"},
        "eventTime": "2030-01-01T00:00:00.000000Z",
        "note": "hello",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reportingController": "s",
        "reason": "Scheduled",
        "type": "Normal",
    }
    path = "/namespaces/default/events"
    status, made = api.post(f"/apis/events.k8s.io/v1{path}", new)
    assert (status, made["apiVersion"], made["note"]) == (201, "events.k8s.io/v1", "hello")
    old = api.get(f"/api/v1{path}/e")[1]
    assert (old["apiVersion"], old["message"], old["involvedObject"]["name"]) == ("v1", "hello", "p")
    selected = api.get(f"/api/v1{path}?fieldSelector=involvedObject.name=p,reason!=Failed")[1]["items"]
    assert [e["metadata"]["name"] for e in selected] == ["e"]
    patched = api.merge(f"/apis/events.k8s.io/v1{path}/e", {"note": "again"})[1]
    assert (patched["note"], api.get(f"/api/v1{path}/e")[1]["message"]) == ("again", "again")
