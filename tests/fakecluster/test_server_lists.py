"""Lists: selectors, pages, resourceVersions."""

import pytest

from koordsched.fakecluster.store import Store
from tests.fakecluster.apiclient import CONFIG_MAPS, PODS, Api, config_map, pod


@pytest.fixture
def api():
    api = Api()
    for i, labels in enumerate(({"app": "a", "tier": "web"}, {"app": "b"}, {"app": "c", "tier": "db"}, {})):
        api.post(PODS, pod(f"p{i}", labels, nodeName="n1" if i % 2 else ""))
    return api


def names(answer):
    status, body = answer
    assert status == 200, body
    return [i["metadata"]["name"] for i in body["items"]]


LABELS = [
    ("", ["p0", "p1", "p2", "p3"]),
    ("app=a", ["p0"]),
    ("app==a", ["p0"]),
    ("app!=a", ["p1", "p2", "p3"]),
    ("app in (a, b)", ["p0", "p1"]),
    ("app notin (a,b)", ["p2", "p3"]),
    ("tier", ["p0", "p2"]),
    ("!tier", ["p1", "p3"]),
    ("app in (a,c),tier!=db", ["p0"]),
    ("tier=", []),
]


@pytest.mark.parametrize("selector, expected", LABELS)
def test_label_selectors(api, selector, expected):
    assert names(api.get(f"{PODS}?labelSelector={selector}")) == expected


FIELDS = [
    ("metadata.name=p1", ["p1"]),
    ("spec.nodeName=n1", ["p1", "p3"]),
    ("spec.nodeName=", ["p0", "p2"]),
    ("spec.nodeName!=n1,metadata.name!=p0", ["p2"]),
    ("status.phase=Pending", ["p0", "p1", "p2", "p3"]),
    ("status.phase!=Pending", []),
    ("metadata.namespace=default,spec.schedulerName=default-scheduler", ["p0", "p1", "p2", "p3"]),
]


@pytest.mark.parametrize("selector, expected", FIELDS)
def test_field_selectors(api, selector, expected):
    assert names(api.get(f"/api/v1/pods?fieldSelector={selector}")) == expected


@pytest.mark.parametrize(
    "query", ["labelSelector=a in", "labelSelector=(", "fieldSelector=spec.image=x", "fieldSelector=a"]
)
def test_bad_selectors(api, query):
    status, body = api.get(f"{PODS}?{query}")
    assert (status, body["reason"]) == (400, "BadRequest")


def test_pages_show_one_state(api):
    first = api.get(f"{PODS}?limit=2")[1]
    assert [i["metadata"]["name"] for i in first["items"]] == ["p0", "p1"]
    assert first["metadata"]["remainingItemCount"] == 2
    api.delete(f"{PODS}/p2")
    api.post(PODS, pod("p9"))
    second = api.get(f"{PODS}?limit=2&continue={first['metadata']['continue']}")[1]
    assert [i["metadata"]["name"] for i in second["items"]] == ["p2", "p3"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


def test_a_lost_page_is_gone_and_a_forged_one_bad(api):
    for _ in range(70):
        api.get(f"{PODS}?limit=1")
    first = Api().get(f"{PODS}?limit=1")[1]
    assert "continue" not in first["metadata"]
    assert api.get(f"{PODS}?continue=WzEsIDFd")[1]["reason"] == "Expired"
    assert api.get(f"{PODS}?continue=%%")[1]["reason"] == "BadRequest"


def test_exact_versions_from_history(api):
    before = api.registry.store.rv
    api.delete(f"{PODS}/p0")
    api.merge(f"{PODS}/p1", {"metadata": {"labels": {"app": "z"}}})
    old = api.get(f"{PODS}?resourceVersion={before}&resourceVersionMatch=Exact")[1]
    assert [(i["metadata"]["name"], i["metadata"].get("labels", {}).get("app")) for i in old["items"]] == [
        ("p0", "a"), ("p1", "b"), ("p2", "c"), ("p3", None),
    ]  # fmt: skip
    assert old["metadata"]["resourceVersion"] == str(before)
    assert names(api.get(f"{PODS}?resourceVersion={before}&resourceVersionMatch=NotOlderThan")) == ["p1", "p2", "p3"]
    api.registry.collection(api.registry.pods).compact()
    status, body = api.get(f"{PODS}?resourceVersion={before}&resourceVersionMatch=Exact")
    assert (status, body["reason"]) == (410, "Expired")


def test_the_future_is_refused(api):
    status, body = api.get(f"{PODS}?resourceVersion=999999")
    assert (status, body["reason"], body["details"]["causes"][0]["reason"]) == (
        504,
        "Timeout",
        "ResourceVersionTooLarge",
    )
    assert api.get(f"{PODS}?resourceVersion=abc")[0] == 400


def test_history_is_bounded_by_bytes_and_length():
    api = Api(store=Store(history_length=10))
    for i in range(25):
        api.post(CONFIG_MAPS, config_map(f"c{i}"))
    collection = api.registry.collection(api.registry.resource("", "v1", "configmaps"))
    assert (len(collection.history), len(collection.items)) == (10, 25)
    small = Api(store=Store(history_bytes=5000))
    for i in range(25):
        small.post(CONFIG_MAPS, config_map(f"c{i}", k="x" * 1000))
    assert len(small.registry.collection(small.registry.resource("", "v1", "configmaps")).history) == 3


async def test_large_lists_are_streamed_whole(api):
    import json

    for i in range(1200):
        api.post(CONFIG_MAPS, config_map(f"c{i:04}"))
    response = api.response("GET", CONFIG_MAPS)
    body = b"".join([part async for part in response.body])
    assert [i["metadata"]["name"] for i in json.loads(body)["items"]] == [f"c{i:04}" for i in range(1200)]
