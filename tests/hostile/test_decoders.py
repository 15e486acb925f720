"""Any bytes give a value or one clear error; any object leaves the scheduler running and everybody else served."""

import asyncio
import copy
import json
import logging
from contextlib import suppress

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import LabelSelector
from koordsched.api.quantity import QuantityError, parse
from koordsched.api.selectors import SelectorError, compile_selector
from koordsched.client.jsonformat import LineSplitter, meta_of, split_event
from koordsched.client.lease import Lease
from koordsched.client.wireformat import Unreadable
from koordsched.plugins import KINDS
from tests.depth import examples
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, node_affinity, pod, term
from tests.virtualtime import run

TYPES = (Lease, *(kind.type for kind in KINDS.values()))
NEARLY_QUANTITIES = r"[+-]?[0-9.]{0,40}([eE][+-]?[0-9]{0,9}|[KMGTPE]i?|[numk])?"
DECODERS = [Decoder(kind) for kind in TYPES]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "1", "-1", "1e9", "9E", "\0", "\n", "*", "In", "NotIn", "Gt", "DoNotSchedule", "a/b/c", "é"]),
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)

RICH_POD = pod(
    "victim",
    container(cpu="1", memory="1Gi", ports=[80]),
    labels={"app": "web"},
    nodeSelector={"disk": "ssd"},
    tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
    affinity=node_affinity(required=[term(("disk", "In", "ssd"))], preferred=[(1, term(("size", "Gt", "3")))])
    | {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}, "namespaces": ["a"]}
            ]
        }
    },
    topologySpreadConstraints=[
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    initContainers=[container(name="i", cpu="1", restart_policy="Always")],
    overhead={"cpu": "10m"},
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    schedulingGates=[],
)
RICH_NODE = node("odd", labels={"disk": "ssd"}, taints=[("k", "NoSchedule")], images={"i": 5}, features=["F"])


def places(value, path=()):
    """Where something can be put into a JSON value."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        found += places(member, (*path, key))
    return found


def with_at(value, path, other):
    """The value with another one at this place."""
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return changed


def spoilt(thing):
    """The object with up to three of its parts replaced; what tells the server which object it is stays."""
    keep = {("metadata",), ("spec",), ("status",), ("kind",), ("apiVersion",)}
    fixed = ("name", "namespace", "uid")
    spots = [p for p in places(thing) if p and p not in keep and not (p[0] == "metadata" and p[1] in fixed)]
    # Shortest last: what lies within a part that is replaced is gone.
    return st.lists(st.tuples(st.sampled_from(spots), JSON), min_size=1, max_size=3).map(
        lambda changes: _apply(thing, sorted(changes, key=lambda change: -len(change[0])))
    )


def _apply(thing, changes):
    for path, value in changes:
        with suppress(KeyError, IndexError, TypeError):
            thing = with_at(thing, path, value)
    return thing


@settings(max_examples=examples(300), deadline=None)
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")) | JSON.map(msgspec.json.encode))
@example(b"[" * 100_000)
@example(b'{"spec":' * 50_000)
@example(b'{"metadata":{"name":"\\ud800"}}')
@example(b'{"spec":{"priority":' + b"9" * 5000 + b"}}")
@example(b'{"metadata":null,"spec":null,"status":null}')
def test_any_bytes(data):
    for decode in DECODERS:
        with suppress(DecodeError):
            decode(data)
    meta_of(data)
    for line in LineSplitter().feed(data + b"\n"):
        with suppress(Unreadable):
            split_event(line)


@settings(max_examples=examples(500), deadline=None)
@given(st.text() | st.from_regex(NEARLY_QUANTITIES, fullmatch=True) | SCALARS)
@example("1e999999999")
@example("9" * 100_000)
@example("١")
def test_any_quantity(text):
    if isinstance(text, str | int | float):
        with suppress(QuantityError):
            parse(text)


@settings(max_examples=examples(300), deadline=None)
@given(JSON | st.fixed_dictionaries({}, optional={"matchLabels": JSON, "matchExpressions": JSON}))
def test_any_selector(value):
    with suppress(DecodeError, SelectorError):
        selector = Decoder(LabelSelector)(msgspec.json.encode(value))
        compile_selector(selector).matches({"app": "web"})


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(spoilt(RICH_POD), min_size=1, max_size=6), st.lists(spoilt(RICH_NODE), max_size=3))
def test_spoilt_objects_harm_no_others(pods, nodes):
    """The scheduler has read them, has not stumbled, and has placed a sound pod."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("sound", cpu="64", memory="256Gi"))
        for i, thing in enumerate(nodes):
            thing["metadata"]["name"] = f"odd-{i}"
            _insert(embedded, thing)
        async with scheduler_on(embedded):
            for i, thing in enumerate(pods):
                thing["metadata"] |= {"name": f"victim-{i}", "uid": f"uid-{i}"}
                _insert(embedded, thing)
            embedded.insert(pod("fine", container(cpu="1"), nodeSelector={"kubernetes.io/hostname": "sound"}))
            await asyncio.sleep(30)
            assert embedded.get("Pod", "fine")["spec"].get("nodeName") == "sound"

    with _Errors() as errors:
        run(main())
    assert errors == []


def _insert(embedded, thing):
    """Past validation, as an old version of a server or another admission might have let it in."""
    with suppress(Exception):  # the embedded server need not take everything: it is not what is tested here
        embedded.insert(json.loads(msgspec.json.encode(thing)))


class _Errors(logging.Handler):
    """The errors that are logged within the block."""

    def __enter__(self):
        self.found = []
        logging.getLogger("koordsched").addHandler(self)
        return self.found

    def __exit__(self, *exception):
        logging.getLogger("koordsched").removeHandler(self)

    def emit(self, record):
        if record.levelno >= logging.ERROR and not record.name.startswith("koordsched.fakecluster"):
            self.found.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")
