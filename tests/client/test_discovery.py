"""Which resources an API server has, by its own word."""

import json

import pytest

from koordsched.client.discovery import listable
from koordsched.client.errors import ClientError
from koordsched.client.inmemory import InMemoryTransport
from tests.client.apifake import reply
from tests.virtualtime import run


def group(name, *versions, preferred=None):
    made = {"name": name, "versions": [{"groupVersion": f"{name}/{version}"} for version in versions]}
    return made | ({"preferredVersion": {"groupVersion": f"{name}/{preferred}"}} if preferred else {})


def resources(*names, verbs=("list", "watch")):
    return {"resources": [{"name": name, "kind": name.title(), "verbs": verbs} for name in names]}


def asked(answers):
    """What is found on a server that gives these answers, by path."""

    async def handler(method, path, query, headers, body):
        answer = answers.get(path)
        return reply(503, "ServiceUnavailable") if answer is None else (200, {}, json.dumps(answer).encode())

    async def main():
        return await listable(InMemoryTransport(handler))

    return run(main())


CORE = {"/api/v1": resources("pods", "pods/log"), "/apis": {"groups": []}}


def test_only_collections_that_can_be_listed_count():
    found, silent = asked(CORE | {"/api/v1": resources("pods", "pods/log") | {"more": 1}})
    assert [(each.path, each.qualified, each.api_version, each.kind) for each in found] == [
        ("/api/v1/pods", "pods", "v1", "Pods")
    ]
    assert silent == []
    assert asked(CORE | {"/api/v1": resources("bindings", verbs=("create",))}) == ([], [])


@pytest.mark.parametrize(
    ("offered", "version"),
    [
        (group("x.io", "v2", "v1", preferred="v1"), "v1"),
        (group("x.io", "v2", "v1"), "v2"),
        (group("x.io"), None),
    ],
)
def test_a_group_is_read_in_the_version_that_the_server_prefers(offered, version):
    answers = {f"/apis/x.io/{each}": resources("things") for each in ("v1", "v2")}
    found, silent = asked(CORE | answers | {"/apis": {"groups": [offered]}})
    expected = [(f"/apis/x.io/{version}/things", "things.x.io", f"x.io/{version}")] if version else []
    assert [(each.path, each.qualified, each.api_version) for each in found[1:]] == expected
    assert silent == []


def test_a_group_that_does_not_answer_is_named_and_the_others_are_read():
    groups = {"groups": [group("down.io", "v1"), group("x.io", "v1")]}
    found, silent = asked(CORE | {"/apis": groups, "/apis/x.io/v1": resources("things")})
    assert [each.qualified for each in found] == ["pods", "things.x.io"]
    (text,) = silent
    assert text.startswith("down.io/v1: ")


@pytest.mark.parametrize("path", ["/api/v1", "/apis"])
def test_a_server_that_does_not_answer_is_an_error(path):
    with pytest.raises(ClientError):
        asked(CORE | {path: None})
