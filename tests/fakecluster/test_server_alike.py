"""Pods sent alike share one reading of their spec: nobody can tell, and what it depends on is looked at each time."""

import orjson
import pytest

from koordsched.fakecluster.preencoded import Preencoded, encode, preencode
from tests.fakecluster.apiclient import PODS, Api, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def api():
    return Api()


def priority_class(value):
    return {"metadata": {"name": "high"}, "value": value}


def spec_of(api, name):
    status, found = api.get(f"{PODS}/{name}")
    assert status == 200, found
    return found["spec"], found["status"]


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
    "matchLabelKeys": ["rev"],
}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="minimal"),
        pytest.param({"schedulingGates": [{"name": "example.com/gate"}]}, id="gated"),
        pytest.param({"serviceAccount": "robot", "nodeName": None, "hostNetwork": True}, id="nulls and old names"),
        pytest.param(
            {"containers": [{"name": "c", "image": "a", "resources": {"limits": {"cpu": 1, "memory": "1024Ki"}}}]},
            id="quantities",
        ),
        pytest.param({"topologySpreadConstraints": [SPREAD]}, id="label keys"),
        pytest.param({"nodeName": "n1", "tolerations": [{"operator": "Exists"}]}, id="placed"),
    ],
)
def test_a_pod_sent_as_one_before_is_stored_as_if_it_were_the_first(api, spec):
    told = {key: value for key, value in spec.items() if value is not None}
    api.registry.create(api.registry.pods, "default", pod("inside", {"rev": "1"}, **told))
    for name in ("first", "second", "third"):
        status, made = api.post(PODS, pod(name, {"rev": "1"}, **spec))
        assert status == 201, made
    for name in ("first", "second", "third"):
        assert spec_of(api, name) == spec_of(api, "inside")


def test_label_keys_are_merged_with_the_labels_of_each_pod(api):
    for revision in ("1", "2", "3"):
        api.post(PODS, pod(f"p{revision}", {"rev": revision}, topologySpreadConstraints=[SPREAD]))
    values = [
        spec_of(api, name)[0]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"][0]["values"]
        for name in ("p1", "p2", "p3")
    ]
    assert values == [["1"], ["2"], ["3"]]


def test_a_class_counts_as_it_is_when_the_pod_comes(api):
    body = {"priorityClassName": "high"}
    refused = [api.post(PODS, pod(name, **body))[0] for name in ("p0", "p0")]
    api.post(CLASSES, priority_class(5))
    api.post(PODS, pod("p1", **body))
    api.delete(f"{CLASSES}/high")
    refused.append(api.post(PODS, pod("p2", **body))[0])
    api.post(CLASSES, priority_class(7))
    api.post(PODS, pod("p2", **body))
    assert refused == [403, 403, 403]
    assert [spec_of(api, name)[0]["priority"] for name in ("p1", "p2")] == [5, 7]


def test_limit_ranges_count_where_and_while_they_are(api):
    ranges = "/api/v1/namespaces/default/limitranges"
    bounds = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "250m"}}]}
    for name in ("first", "before"):
        api.post(PODS, pod(name))
    api.post(ranges, {"metadata": {"name": "bounds"}, "spec": bounds})
    api.post(PODS, pod("under"))
    api.delete(f"{ranges}/bounds")
    api.post(PODS, pod("after"))
    resources = [spec_of(api, name)[0]["containers"][0]["resources"] for name in ("before", "under", "after")]
    assert resources == [{}, {"requests": {"cpu": "250m"}}, {}]


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        pytest.param({"restartPolicy": "Perhaps"}, 422, 'Unsupported value: "Perhaps"', id="invalid"),
        pytest.param({"restartPolicy": 5}, 400, "spec.restartPolicy", id="wrong type"),
        pytest.param({"containers": None}, 422, "spec.containers: Required value", id="missing"),
    ],
)
def test_what_is_refused_once_is_refused_again_in_the_same_words(api, change, code, text):
    answers = [api.post(PODS, pod("p", **change)) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] == code
    assert text in answers[0][1]["message"]


def test_unknown_fields_are_told_each_time(api):
    for name in ("p1", "p2", "p3"):
        response = api.response("POST", PODS, pod(name, colour="red"))
        assert response.status == 201
        assert response.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'
        assert "colour" not in orjson.loads(response.body)["spec"]


def test_pods_alike_live_apart(api):
    for name in ("p0", "p1", "p2"):
        api.post(PODS, pod(name))
    api.call("PATCH", f"{PODS}/p1", {"spec": {"activeDeadlineSeconds": 9}}, "application/merge-patch+json")
    api.post(f"{PODS}/p2/binding", {"target": {"name": "n1"}})
    api.call("PATCH", f"{PODS}/p2/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
    api.post(PODS, pod("p3"))
    found = {name: spec_of(api, name) for name in ("p1", "p2", "p3")}
    assert [s.get("activeDeadlineSeconds") for s, _ in found.values()] == [9, None, None]
    assert [s.get("nodeName") for s, _ in found.values()] == [None, "n1", None]
    assert [t["phase"] for _, t in found.values()] == ["Pending", "Running", "Pending"]


@pytest.mark.parametrize(
    ("content", "key", "expected"),
    [({}, "k", {"k": "v"}), ({"a": [1]}, "k", {"a": [1], "k": "v"}), ({"k": 1, "b": 2}, "k", {"k": "v", "b": 2})],
)
def test_a_sealed_part_with_one_more_key_encodes_as_what_it_is(content, key, expected):
    changed = preencode(content).having(key, "v")
    assert changed == expected
    assert orjson.loads(changed.encoded) == expected
    assert orjson.loads(encode({"spec": changed, "x": 1})) == {"spec": expected, "x": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.__setitem__("a", 2),
        lambda part: part.update(a=2),
        lambda part: part.setdefault("b", 2),
        lambda part: part.pop("a"),
        lambda part: part.__delitem__("a"),
        lambda part: part.__ior__({"b": 1}),
        lambda part: part.clear(),
    ],
)
def test_a_sealed_part_cannot_be_changed(change):
    part = Preencoded({"a": 1}, b'{"a":1}')
    with pytest.raises(TypeError, match="cannot be changed"):
        change(part)
    assert part == {"a": 1}
