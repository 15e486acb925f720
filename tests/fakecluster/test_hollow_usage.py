"""The annotation koordsched.io/usage: its forms, what is none of them, and traces."""

import json
import math

import numpy as np
import pytest

from koordsched.fakecluster.hollow.podusage import default_usage, stated_usage
from koordsched.fakecluster.hollow.templates import TemplateError, load_templates
from koordsched.fakecluster.hollow.traces import Traces
from koordsched.fakecluster.hollow.usage import Share, read_node_usage, read_usage
from tests.fakecluster.loads import ROOT, pod

START = 1893456000.0
GIB = 1 << 30
TRACE = """\
# time, CPU, memory
0s    100m  1Gi
30,   200m, 2Gi

2m    1     0     # to the end
"""


@pytest.fixture
def traces(tmp_path):
    (tmp_path / "web.txt").write_text(TRACE)
    (tmp_path / "late.txt").write_text("60s 1 1Gi")
    return Traces(tmp_path)


SINE = {"mean": "1", "amplitude": "500m", "period": "4m", "phase": "30s"}
FORMS = [
    # annotation -> (CPU, memory) at some ages; 600 m and 8 Gi by default
    ({}, {0: (600, 8 * GIB)}),
    ({"cpu": "1500m", "memory": "2Gi"}, {0: (1500, 2 * GIB), 999: (1500, 2 * GIB)}),
    ({"cpu": 2, "memory": 1024}, {0: (2000, 1024)}),
    ({"cpu": 0.25}, {0: (250, 8 * GIB)}),
    ({"cpu": 0, "memory": "0"}, {0: (0, 0)}),
    ({"memory": "1Gi"}, {0: (600, GIB)}),
    ({"cpu": SINE}, {t: (1000 + 500 * math.sin((t + 30) / 240 * 2 * math.pi), 8 * GIB) for t in (0, 30, 100, 210)}),
    ({"cpu": {**SINE, "amplitude": "3"}}, {30: (4000, 8 * GIB), 150: (0, 8 * GIB)}),
    ({"memory": {"mean": "1Gi", "amplitude": "1Gi", "period": "1h"}}, {0: (600, GIB), 900: (600, 2 * GIB)}),
    (
        {"cpu": {"from": "500m", "to": "4", "after": "5m"}},
        {0: (500, 8 * GIB), 299: (500, 8 * GIB), 300: (4000, 8 * GIB)},
    ),
    ({"trace": "web.txt"}, {0: (100, GIB), 29: (100, GIB), 30: (200, 2 * GIB), 120: (1000, 0), 9999: (1000, 0)}),
    ({"trace": "web.txt", "repeat": "3m"}, {179: (1000, 0), 180: (100, GIB), 215: (200, 2 * GIB)}),
    ({"trace": "web.txt", "memory": "5Gi"}, {0: (100, 5 * GIB), 30: (200, 5 * GIB)}),
    ({"trace": "late.txt"}, {0: (1000, GIB), 60: (1000, GIB)}),
]


def values(usage, ages):
    times = START + np.array(list(ages), dtype=np.float64)
    return [tuple(pair) for pair in zip(*(np.broadcast_to(curve.at(times, START), times.shape) for curve in usage))]  # noqa: B905


@pytest.mark.parametrize("annotation, expected", FORMS)
def test_forms(annotation, expected, traces):
    thing = pod("p", annotation, requests={"cpu": "1", "memory": "10Gi"})
    found = values(stated_usage(thing, Share(), traces), expected)
    assert found == [pytest.approx(pair, abs=1e-3) for pair in expected.values()]


REQUESTS = [
    # requests, limits, share -> default CPU and memory
    ({"cpu": "1", "memory": "1Gi"}, {}, Share(), (600, 0.8 * GIB)),
    ({"cpu": "1", "memory": "1Gi"}, {}, Share(150, 0), (1500, 0)),
    ({"cpu": "1"}, {"cpu": "1200m"}, Share(150), (1200, 0)),
    ({}, {}, Share(), (0, 0)),
    ({"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "1Gi"}, {}, Share(), (2400, 0.8 * GIB)),
    ({"kubernetes.io/mid-cpu": "500", "kubernetes.io/mid-memory": "1Gi"}, {}, Share(), (300, 0.8 * GIB)),
    ({"cpu": "garbage"}, {"cpu": "none"}, Share(), (0, 0)),
]


@pytest.mark.parametrize("requests, limits, share, expected", REQUESTS)
def test_defaults(requests, limits, share, expected):
    (found,) = values(default_usage(pod("p", requests=requests, limits=limits), share), [0])
    assert found == pytest.approx(expected)


def container(name, cpu=None, limit=None, **fields):
    resources = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"name": name, "resources": resources, **fields}


SPECS = [
    # containers, init containers, pod-level resources -> CPU that is used of ten
    ([container("a", limit="1"), container("b", limit="2")], [], {}, 3000),
    ([container("a", limit="1"), container("b")], [], {}, 10000),
    ([container("a", limit="1")], [container("i", limit="2")], {}, 1000),
    ([container("a", limit="1")], [container("s", limit="2", restartPolicy="Always")], {}, 3000),
    ([container("a", limit="1"), container("b")], [], {"limits": {"cpu": "4"}}, 4000),
]


@pytest.mark.parametrize("containers, init, resources, expected", SPECS)
@pytest.mark.parametrize("form", ["10", {"from": "10", "to": "10", "after": "0s"}])
def test_no_pod_uses_more_than_its_limit(containers, init, resources, expected, form):
    spec = {"containers": containers, "initContainers": init, "resources": resources}
    thing = pod("p", {"cpu": form}, **spec)
    assert values(stated_usage(thing, Share(), Traces(None)), [0])[0][0] == expected


def test_requests_of_all_containers_that_run_count():
    init = [container("i", "8"), container("s", "1", restartPolicy="Always")]
    thing = pod("p", containers=[container("a", "1"), container("b", "2")], initContainers=init)
    assert values(default_usage(thing, Share(50)), [0])[0][0] == 2000
    thing["spec"]["resources"] = {"requests": {"cpu": "10"}}
    assert values(default_usage(thing, Share(50)), [0])[0][0] == 5000


BROKEN = [
    ("", "truncated"),
    ("{}x", "trailing characters"),
    ("[]", "Expected `object`, got `array`"),
    ('"1500m"', "Expected `object`, got `str`"),
    ('{"disk": 1}', "unknown field `disk`"),
    ('{"cpu": "lots"}', "cpu: quantity 'lots' must match"),
    ('{"memory": "-1Gi"}', "memory: '-1Gi' must not be negative"),
    ('{"cpu": -1}', "cpu: -1 must not be negative"),
    ('{"cpu": true}', "cpu: quantity True is not a number"),
    ('{"cpu": 1e999}', "out of range|is not a number"),
    ('{"cpu": ["1"]}', "cpu: not a quantity"),
    ('{"cpu": {}}', "cpu: Object missing required field `mean`"),
    ('{"cpu": {"mean": 1, "amplitude": 1}}', "cpu: Object missing required field `period`"),
    ('{"cpu": {"mean": 1, "amplitude": 1, "period": "0s"}}', "cpu: period: must be longer than 0s"),
    ('{"cpu": {"mean": 1, "amplitude": 1, "period": "soon"}}', "cpu: period: 'soon' is not a duration"),
    ('{"cpu": {"mean": {}, "amplitude": 1, "period": "1s"}}', "cpu: not a quantity"),
    ('{"cpu": {"mean": 1, "amplitude": 1, "period": "1s", "by": 1}}', "cpu: Object contains unknown field `by`"),
    ('{"cpu": {"from": 1, "after": "1s"}}', "cpu: Object missing required field `to`"),
    ('{"cpu": {"from": 1, "to": 2, "after": 5}}', "cpu: Expected `str`, got `int`"),
    ('{"repeat": "1h"}', "repeat: only a trace can be repeated"),
    ('{"trace": "web.txt", "repeat": "often"}', "repeat: 'often' is not a duration"),
    ('{"trace": 3}', "Expected `str`, got `int`"),
    ("{" * 4000, "malformed"),
    ('{"cpu": ' + "[" * 4000, "nested too deeply"),
    (" " * 4097, "longer than 4096 characters"),
]


@pytest.mark.parametrize("text, message", BROKEN)
def test_what_is_no_usage(text, message):
    with pytest.raises(ValueError, match=message):
        read_usage(text)


def test_absurd_amounts_stay_numbers():
    usage = read_usage(json.dumps({"cpu": "1e999999999", "memory": 10**300})).usage(None, Traces(None))
    ((cpu, memory),) = values(usage, [0])
    assert (cpu, memory) == (float(1 << 53), float(1 << 53))


NODES = [
    ('{"system": {"cpu": "x"}}', "cpu: quantity 'x'"),
    ('{"system": 3}', "Expected `object`, got `int`"),
    ('{"share": {"cpu": -1}}', "percentages are from 0 to 1000"),
    ('{"share": {"memory": 1001}}', "percentages are from 0 to 1000"),
    ('{"share": {"cpu": "60"}}', "Expected `float`, got `str`"),
    ('{"reportInterval": "29s"}', "reportInterval: '29s' is not from 30s to 24h"),
    ('{"reportInterval": "25h"}', "reportInterval: '25h' is not from 30s to 24h"),
    ('{"reportInterval": "60"}', "reportInterval: '60' is not a duration"),
    ('{"history": "14s"}', "history: '14s' is not from 15s to 2h"),
    ('{"history": "121m"}', "history: '121m' is not from 15s to 2h"),
    ('{"history": "soon"}', "history: 'soon' is not a duration"),
    ('{"cpu": 1}', "unknown field `cpu`"),
]


@pytest.mark.parametrize("text, message", NODES)
def test_what_is_no_usage_of_a_node(text, message):
    with pytest.raises(ValueError, match=message):
        read_node_usage(text)
    content = {"templates": [{"capacity": {"cpu": 1}, "usage": json.loads(text)}]}
    with pytest.raises(TemplateError, match=message):
        load_templates(content)


FILES = [
    ("", "trace 'bad.txt': empty"),
    ("# nothing\n\n", "trace 'bad.txt': empty"),
    ("0s 1", "line 1: not a time, a CPU amount and a memory amount"),
    ("0s 1 1Gi\n5s 1 1Gi 3", "line 2: not a time, a CPU amount and a memory amount"),
    ("0s 1 1Gi\nsoon 1 1Gi", "line 2: 'soon' is not a duration"),
    ("0s 1 1Gi\n# comment\n-5 1 1Gi", "line 3: '-5s' is not a duration"),
    ("0s one 1Gi", "line 1: quantity 'one' must match"),
    ("0s 1 -1Gi", "line 1: '-1Gi' must not be negative"),
    ("5s 1 1Gi\n5s 2 1Gi", "line 2: times have to ascend"),
    (b"\xff\xfe\x00", "not UTF-8 text"),
    (b"0s 1 1Gi\n" * 500_000, "larger than 4 MiB"),
]


@pytest.mark.parametrize("content, message", FILES, ids=[message for _, message in FILES])
def test_bad_traces_are_named(tmp_path, content, message):
    (tmp_path / "bad.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        Traces(tmp_path).load("bad.txt")


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/passwd", "a/../b", ".", "..", "", "none.txt", "x" * 400, "a\0b"]
)
def test_pods_cannot_name_other_files(tmp_path, name):
    inside = tmp_path / "traces"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("0s 1 1Gi")
    with pytest.raises(ValueError, match=r"is not the name of a file|no such file|File name too long"):
        Traces(inside).load(name)
    with pytest.raises(ValueError, match="no directory of traces was given"):
        Traces(None).load(name)


def test_traces_are_read_once(tmp_path, traces):
    first = traces.load("web.txt")
    (tmp_path / "web.txt").unlink()
    assert traces.load("web.txt") is first


@pytest.mark.parametrize("path", sorted((ROOT / "config/examples/node-templates").glob("*.yaml")), ids=lambda p: p.name)
def test_the_examples_can_be_used(path):
    assert load_templates(path)
