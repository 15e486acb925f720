"""Watches: what is sent, from when, and when it ends."""

import asyncio

import pytest

from koordsched.fakecluster.watch import WatchHub
from tests.fakecluster.apiclient import CONFIG_MAPS, PODS, Api, config_map, pod


@pytest.fixture
def api():
    return Api()


def brief(event):
    return event["type"], event["object"]["metadata"]["name"]


async def test_from_a_version(api):
    api.post(CONFIG_MAPS, config_map("a"))
    rv = api.get(CONFIG_MAPS)[1]["metadata"]["resourceVersion"]
    api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    stream = api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={rv}")
    api.post(CONFIG_MAPS, config_map("b"))
    api.delete(f"{CONFIG_MAPS}/a")
    events = await stream.raw(3)
    assert [brief(e) for e in events] == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
async def test_without_a_version_the_present_state_comes_first(api, version):
    api.post(CONFIG_MAPS, config_map("a"))
    stream = api.watch(f"{CONFIG_MAPS}?watch=true{version}")
    api.post(CONFIG_MAPS, config_map("b"))
    assert [brief(e) for e in await stream.raw(2)] == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_end_with_a_bookmark(api):
    api.post(CONFIG_MAPS, config_map("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = api.watch(f"{CONFIG_MAPS}?{query}")
    rv = str(api.registry.store.rv)
    api.post(CONFIG_MAPS, config_map("b"))
    first, mark, then = await stream.raw(3)
    assert brief(first) == ("ADDED", "a")
    assert mark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": rv,
                "creationTimestamp": None,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        },
    }
    assert brief(then) == ("ADDED", "b")


@pytest.mark.parametrize(
    "query, field",
    [
        ("sendInitialEvents=true&allowWatchBookmarks=true", "resourceVersionMatch"),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "allowWatchBookmarks"),
    ],
)
def test_initial_events_need_their_options(api, query, field):
    status, body = api.get(f"{CONFIG_MAPS}?watch=1&{query}")
    assert (status, body["details"]["causes"][0]["field"]) == (422, field)


SELECTED = [
    ("enters", {}, {"app": "a"}, "ADDED"),
    ("stays", {"app": "a", "v": "1"}, {"app": "a", "v": "2"}, "MODIFIED"),
    ("leaves", {"app": "a"}, {"app": "b"}, "DELETED"),
]


@pytest.mark.parametrize("before, after, expected", [s[1:] for s in SELECTED], ids=[s[0] for s in SELECTED])
async def test_selectors_make_their_own_events(api, before, after, expected):
    api.post(CONFIG_MAPS, config_map("x", before))
    rv = api.registry.store.rv
    stream = api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={rv}&labelSelector=app=a")
    patch = {"metadata": {"labels": {**dict.fromkeys(before), **after}}}
    _, stored = api.merge(f"{CONFIG_MAPS}/x", patch)
    api.post(CONFIG_MAPS, config_map("other", {"app": "z"}))
    api.post(CONFIG_MAPS, config_map("end", {"app": "a"}))
    event, end = await stream.raw(2)
    assert (event["type"], brief(end)) == (expected, ("ADDED", "end"))
    meta = event["object"]["metadata"]
    assert meta["resourceVersion"] == stored["metadata"]["resourceVersion"]
    # Who leaves is told of as he was last seen.
    assert meta["labels"] == (before if expected == "DELETED" else after)


async def test_a_field_selector_follows_bound_pods(api):
    stream = api.watch("/api/v1/pods?watch=1&resourceVersion=5&fieldSelector=spec.nodeName=n1")
    api.post(PODS, pod("p"))
    api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert [brief(e) for e in await stream.raw(2)] == [("ADDED", "p"), ("DELETED", "p")]


async def test_namespaces_are_apart(api):
    api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    stream = api.watch(f"{CONFIG_MAPS}?watch=1")
    api.post("/api/v1/namespaces/other/configmaps", config_map("hidden"))
    api.post(CONFIG_MAPS, config_map("seen"))
    assert [brief(e) for e in await stream.raw(1)] == [("ADDED", "seen")]


async def test_compacted_versions_are_gone(api):
    api.post(CONFIG_MAPS, config_map("a"))
    rv = api.registry.store.rv
    api.post(CONFIG_MAPS, config_map("b"))
    api.registry.collection(api.registry.resource("", "v1", "configmaps")).compact()
    events = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={rv}").rest()
    assert [(e["type"], e["object"]["code"], e["object"]["reason"]) for e in events] == [("ERROR", 410, "Expired")]
    future = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion=99999999").rest()
    assert future[0]["object"]["code"] == 410


async def test_it_ends_after_its_time_with_a_last_bookmark(api):
    stream = api.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=100&allowWatchBookmarks=true")
    reader = asyncio.create_task(stream.rest())
    await asyncio.sleep(0)
    api.timers.advance(61)
    api.post(CONFIG_MAPS, config_map("a"))
    api.timers.advance(40)
    events = await reader
    assert [e["type"] for e in events] == ["BOOKMARK", "ADDED", "BOOKMARK"]
    assert events[-1]["object"]["metadata"]["resourceVersion"] == str(api.registry.store.rv)


async def test_watchers_alike_share_one_encoding(api):
    first, second = (api.watch(f"{CONFIG_MAPS}?watch=1") for _ in range(2))
    api.post(CONFIG_MAPS, config_map("a"))
    collection = api.registry.collection(api.registry.resource("", "v1", "configmaps"))
    assert len(collection.observers) == 1
    assert len(collection.history[-1].frames) == 1
    assert await first.raw(1) == await second.raw(1)
    await first.close()
    await second.close()
    assert collection.observers == []


async def test_an_unread_watch_is_released(api):
    stream = api.watch(f"{CONFIG_MAPS}?watch=1")
    await stream.close()
    assert api.registry.collection(api.registry.resource("", "v1", "configmaps")).observers == []


async def test_a_slow_watcher_is_closed_and_the_others_go_on():
    api = Api()
    api = Api(hub=WatchHub(api.timers, buffer_limit=20_000))
    slow, quick = (api.watch(f"{CONFIG_MAPS}?watch=1") for _ in range(2))
    reader = asyncio.create_task(quick.raw(100))
    for i in range(100):
        api.post(CONFIG_MAPS, config_map(f"c{i}", k="x" * 500))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(await reader) == 100
    assert await slow.rest() == []
    await quick.close()


async def test_a_table_can_be_watched(api):
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    response = api.response("GET", f"{PODS}?watch=1", headers=accept)
    api.post(PODS, pod("p"))
    import json

    event = json.loads(await anext(response.body.__aiter__()))
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
    assert event["object"]["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]
    await response.body.aclose()
