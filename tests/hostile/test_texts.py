"""Whatever else is read of what others wrote: answers, files, annotations, flags. A value, or the error it promises."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import ObjectMeta
from koordsched.cli.endpoints import _manifest
from koordsched.cli.objectfiles import InputError, read_objects
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ApiError, ConnectionConfigError, error_from_status
from koordsched.client.jsonformat import decode_page
from koordsched.client.lease import LeaseLock, Record
from koordsched.client.settings import parse_server, read_kubeconfig
from koordsched.client.wireformat import Unreadable
from koordsched.cluster.pod import _deadline
from koordsched.extender.wire import BadReply, read_binding, read_filter, read_priorities, read_victims
from koordsched.fakecluster.release import parse_release
from koordsched.observability.logging import LogOptionError, parse_verbosity
from koordsched.observability.metric_options import MetricOptionError, parse_metric_options
from koordsched.plugins.elasticquota.controller.profiles import keys_of, ratio_of
from koordsched.plugins.elasticquota.definitions import read as read_quota
from koordsched.plugins.elasticquota.kinds import (
    NAMESPACES,
    SHARED_WEIGHT,
    TOTAL_RESOURCE,
    UNSCHEDULABLE_RESOURCE,
    ElasticQuota,
)
from koordsched.plugins.elasticquota.webhook.declared import Refused, amounts_in, canonical, names_in
from koordsched.plugins.shared.preemption.candidates import _seconds_of
from tests.depth import examples
from tests.hostile.test_decoders import JSON, NEARLY_QUANTITIES

DEEP = b"[" * 100_000, b'{"a":' * 50_000, b'{"details":' + b'{"a":' * 50_000
NUMBERS = b"9" * 5000, b"1e999", b"-1e999", b"NaN"


def status_error(body):
    error = error_from_status(body, 500)
    assert isinstance(error, ApiError)
    assert error.retry_after is None or 0 <= error.retry_after < float("inf")
    str(error)


def lease(body):
    lock = LeaseLock(body, 15.0)
    lock.rewritten(Record("me", 15.0, "", "", 0))


def page(body):
    for item in decode_page(body).items:
        bytes(item)


ANSWERS = {
    "status": (status_error, ()),
    "status in a watch": (lambda body: error_from_status(body), ()),
    "lease": (lease, (msgspec.MsgspecError,)),
    "page of a list": (page, (Unreadable,)),
    "extender's filter, names": (lambda body: read_filter(body, names=True), (BadReply,)),
    "extender's filter, nodes": (lambda body: read_filter(body, names=False), (BadReply,)),
    "extender's scores": (read_priorities, (BadReply,)),
    "extender's victims": (read_victims, (BadReply,)),
    "extender's binding": (read_binding, (BadReply,)),
}

WORDS = """details retryAfterSeconds code reason message causes metadata spec holderIdentity leaseDurationSeconds
    renewTime leaseTransitions items continue resourceVersion NodeNames Nodes FailedNodes Error Host Score Pods UID
    NodeNameToMetaVictims NumPDBViolations apiVersion kind clusters users contexts current-context cluster user context
    name server token tokenFile exec command args env client-certificate-data certificate-authority-data
    username password auth-provider config as impersonate proxy-url tls-server-name insecure-skip-tls-verify"""
KEYS = st.sampled_from(WORDS.split())
SHAPED = st.recursive(JSON, lambda inner: st.dictionaries(KEYS, inner, max_size=5) | st.lists(inner, max_size=3))
BYTES = st.binary() | SHAPED.map(msgspec.json.encode)


def hard(test):
    """The examples that have broken decoders elsewhere."""
    for data in (*DEEP, *NUMBERS, b"", b"null", b"\xff\xfe", b'"\\ud800"', b'{"details":{"retryAfterSeconds":1e400}}'):
        test = example(data)(test)
    for data in (b'{"details":{"retryAfterSeconds":' + b"9" * 400 + b"}}", b'{"details":{"retryAfterSeconds":"nan"}}'):
        test = example(data)(test)
    return example(b'{"spec":{"leaseDurationSeconds":' + b"9" * 400 + b"}}")(test)


@pytest.mark.parametrize("name", ANSWERS)
def test_any_answer(name):
    read, refusals = ANSWERS[name]

    @settings(max_examples=examples(100), deadline=None)
    @given(BYTES)
    @hard
    def any_bytes(body):
        with suppress(*refusals):
            read(body)

    any_bytes()


def kubeconfig(path):
    asyncio.run(read_kubeconfig(str(path), None, "", SystemClock()))


def complete(document):
    """A kubeconfig that gets as far as its parts, with one of them replaced."""
    whole = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    key, value = document
    if isinstance(key, str):
        whole[key] = value
    else:
        part, inner = key
        whole[part] = [{"name": whole[part][0]["name"], inner: value}]
    return msgspec.json.encode(whole)


PLACES = st.sampled_from(
    [
        "current-context",
        "contexts",
        "clusters",
        "users",
        ("contexts", "context"),
        ("clusters", "cluster"),
        ("users", "user"),
    ]
)
NO_PLUGINS = SHAPED.filter(lambda value: b'"exec"' not in msgspec.json.encode(value))
"""A kubeconfig may name a command to run; here it must not."""

FILES = {
    "objects.yaml": (lambda path: read_objects([str(path)]), (InputError,), BYTES),
    "objects.json": (lambda path: read_objects([str(path)]), (InputError,), BYTES),
    "labels.yaml": (lambda path: _manifest(str(path)), (MetricOptionError,), BYTES),
    "kubeconfig": (kubeconfig, (ConnectionConfigError,), st.tuples(PLACES, NO_PLUGINS).map(complete) | st.binary()),
}


@pytest.mark.parametrize("name", FILES)
def test_any_file(name, tmp_path):
    read, refusals, contents = FILES[name]
    file = Path(tmp_path / name)

    @settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(contents)
    @example(b"[" * 5_000)
    @example(b"&a [*a]")
    @example(b"a: 2020-13-45")
    @example(b"? [a]\n: b")
    @example(b"!!python/object/apply:os.system ['true']")
    @example(b"{9999999999999999999999: 1}")
    @example(b"\xff")
    @example(b"- 0x" + b"f" * 400)
    def any_content(content):
        file.write_bytes(content)
        with suppress(*refusals):
            read(file)

    any_content()


ANNOTATIONS = (NAMESPACES, SHARED_WEIGHT, TOTAL_RESOURCE, UNSCHEDULABLE_RESOURCE)
NEARLY_JSON = st.text(max_size=30) | SHAPED.map(lambda value: msgspec.json.encode(value).decode())
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/x", ""]),
    st.from_regex(NEARLY_QUANTITIES, fullmatch=True) | st.integers() | st.floats() | st.text(max_size=5),
    max_size=3,
)
SOME_AMOUNTS = AMOUNTS.map(lambda amounts: msgspec.json.encode(amounts).decode())


@settings(max_examples=examples(300), deadline=None)
@given(
    st.dictionaries(st.sampled_from(ANNOTATIONS), NEARLY_JSON | SOME_AMOUNTS, max_size=4),
    AMOUNTS,
    AMOUNTS,
    st.booleans(),
)
@example(dict.fromkeys(ANNOTATIONS, "[" * 100000), {}, {}, True)
@example(dict.fromkeys(ANNOTATIONS, '{"cpu":"1e999999999"}'), {"cpu": "1e999999999"}, {"cpu": float("inf")}, True)
def test_any_quota(annotations, most, least, trees):
    """An object that decodes is a quota, with complaints."""
    thing = {"metadata": {"name": "q", "annotations": annotations}, "spec": {"max": most, "min": least}}
    with suppress(DecodeError):
        quota = Decoder(ElasticQuota)(msgspec.json.encode(thing))
        reading = read_quota(quota, multiple_trees=trees)
        assert all(isinstance(problem, str) for problem in reading.problems)
        with suppress(Refused):
            canonical(quota.spec.max)
    for text in annotations.values():
        assert isinstance(amounts_in(text), dict)
        assert isinstance(names_in(text), tuple)
        assert keys_of(text)
        assert 0 < ratio_of(text) <= 1


TEXTS = {
    "-v": (parse_verbosity, (LogOptionError,)),
    "--allow-metric-labels": (lambda text: parse_metric_options(allow_metric_labels=[text]), (MetricOptionError,)),
    "--show-hidden-metrics-for-version": (
        lambda text: parse_metric_options(show_hidden_metrics_for_version=text),
        (MetricOptionError,),
    ),
    "--kubernetes-version": (parse_release, (ValueError,)),
    "server": (lambda text: parse_server(text, tls=True), (ConnectionConfigError,)),
    "start time": (_seconds_of, ()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_any_text(name):
    parse, refusals = TEXTS[name]

    @settings(max_examples=examples(200), deadline=None)
    @given(st.text() | st.sampled_from(["0001-01-01", "9999-12-31T23:59:59", "2020-01-01T00:00:00+99:99"]))
    @example("0001-01-01T00:00:00")
    @example("١")
    @example("9" * 5000)
    @example("http://[::1")
    @example("http://a:b:c@d:e")
    @example("https://host:99999999")
    @example("=\0")
    def any_text(text):
        with suppress(*refusals):
            parse(text)

    any_text()


class _Deleted(msgspec.Struct):
    metadata: ObjectMeta


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=30) | st.datetimes().map(str), st.integers() | st.none())
@example("0001-01-01T00:00:00", 10**400)
@example("9999-12-31T23:59:59Z", 1 << 62)
def test_any_deletion(moment, grace):
    thing = {"metadata": {"name": "p", "deletionTimestamp": moment, "deletionGracePeriodSeconds": grace}}
    with suppress(DecodeError):
        meta = Decoder(_Deleted)(msgspec.json.encode(thing)).metadata
        _deadline(meta)
