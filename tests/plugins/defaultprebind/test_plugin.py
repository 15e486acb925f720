"""DefaultPreBind in configurations: what PreBind plugins change is written whatever it says there."""

import asyncio
import json

import pytest

from koordsched.config.advice import warnings
from koordsched.framework.interface import PreBind
from koordsched.framework.status import SUCCESS
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.defaultprebind.plugin import DefaultPreBind
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import resolved
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

NAME = "DefaultPreBind"


class Labels(PreBind):
    name = "Labels"

    def __init__(self, args, handle):
        pass

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.label("where", node)
        return SUCCESS


@pytest.mark.parametrize(
    ("pre_bind", "listed"),
    [
        ({}, ()),
        ({"enabled": [{"name": NAME}]}, (NAME,)),
        ({"disabled": [{"name": NAME}]}, ()),
        ({"disabled": [{"name": "*"}], "enabled": [{"name": "DynamicResources"}, {"name": NAME}]}, (NAME,)),
    ],
)
def test_files_may_name_it(pre_bind, listed):
    found = resolved({"profiles": [{"plugins": {"preBind": pre_bind}}]})
    assert tuple(name for name in found.profiles[0].plugins.pre_bind if name == NAME) == listed
    assert warnings(found, CATALOG, IN_TREE.keys()) == []


def test_arguments_have_no_effect():
    given = {
        "plugins": {"preBind": {"enabled": [{"name": NAME}]}},
        "pluginConfig": [{"name": NAME, "args": {"kind": f"{NAME}Args"}}],
    }
    (note,) = warnings(resolved({"profiles": [given]}), CATALOG, IN_TREE.keys())
    assert note == f'profiles[0].pluginConfig[0] has no effect: plugin "{NAME}" takes no arguments'


@pytest.mark.parametrize("plugins", [[Labels], [Labels, DefaultPreBind], [DefaultPreBind, Labels]])
def test_changes_are_one_patch_whether_it_is_enabled_or_not(plugins):
    assert writes(plugins) == [
        ("PATCH", "/status", {"metadata": {"uid": "uid-default-p"}, "status": {"nominatedNodeName": "alder"}}),
        ("PATCH", "", {"metadata": {"uid": "uid-default-p", "labels": {"where": "alder"}}}),
        ("POST", "/binding", None),
    ]


def test_by_itself_it_writes_nothing():
    assert writes([DefaultPreBind]) == [("POST", "/binding", None)]


def writes(plugins):
    """What is written of a pod on its way to a node: method, subresource, and the body unless it is the binding."""
    path, found = "/api/v1/namespaces/default/pods/p", []

    async def watched(call, proceed):
        if call.path.startswith(path) and call.method != "GET":
            subresource = call.path.removeprefix(path)
            found.append((call.method, subresource, None if subresource == "/binding" else json.loads(call.body)))
        return await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=watched, plugins=plugins):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"

    run(main())
    return found
