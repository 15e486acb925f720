"""`koordsched devices [NODE]` on files: the tables for people, and the answers for programs."""

import json
import re
from textwrap import dedent

import pytest

from tests.cli.clusters import run, run_json
from tests.plugins.deviceshare.machines import GIB, bound, device, fpga, gpu, h8, m2, nic, node, pod, used
from tests.plugins.deviceshare.naive.books import MODEL, NODE, VENDOR
from tests.plugins.deviceshare.naive.request import ALLOCATED, CORE, MEMORY, RATIO

POLICY = f"{NODE}gpu-partition-policy"


@pytest.fixture
def file(tmp_path):
    """Writes objects to a file; returns its name."""

    def written(*things):
        path = tmp_path / "cluster.yaml"
        path.write_text("\n---\n".join(map(json.dumps, things)))
        return str(path)

    return written


def shown(*arguments):
    """What the command prints, without the blanks that end lines."""
    result = run("devices", *arguments)
    assert result.exit_code == 0, result.stderr
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def machine(name="n"):
    """Two GPUs behind switches, one of them unhealthy; a NIC of which a pod has a virtual function; an FPGA."""
    gpus = [gpu(0, "8Gi", ("1", 0)), gpu(1, "8Gi", ("2", 1), health=False), gpu(2, "8Gi", ("2", -1))]
    return [
        node(name, {MODEL: "M2", VENDOR: "nvidia"}),
        device(*gpus, nic(1, ("1", 0), "0000:1f:00", functions=2), fpga(0), name=name),
    ]


def holder():
    """Half of GPU 0, all of GPU 2, and a virtual function."""
    vf = [{"minor": -1, "busID": "0000:1f:00.2"}]
    given = {
        "gpu": [
            {"minor": 0, "resources": {CORE: "50", MEMORY: "4Gi", RATIO: "50"}},
            {"minor": 2, "resources": {CORE: "100", MEMORY: "8Gi", RATIO: "100"}},
        ],
        "rdma": [{"minor": 1, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": vf}}],
    }
    thing = bound(pod(), "a")
    thing["metadata"]["annotations"][ALLOCATED] = json.dumps(given)
    return thing


def part(minor, name="b"):
    """A GPU's memory, and an NPU's template."""
    given = {"minor": minor, "resources": {MEMORY: "1Gi", RATIO: "12"}}
    given["extension"] = {"gpuSharedResourceTemplate": "vir01"}
    thing = bound(pod(), name)
    thing["metadata"]["annotations"][ALLOCATED] = json.dumps({"gpu": [given]})
    return thing


def rows(text):
    """Lines as their cells; empty cells are left out."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_one_node(file):
    half, whole = "core 50, memory 4Gi, ratio 50", "core 100, memory 8Gi, ratio 100"
    assert rows(shown("n", "-f", file(*machine(), holder(), part(0)))) == [
        ["Node n, report valid, nvidia M2"],
        [""],
        ["DEVICE", "STATE", "NUMA NODE", "PCIE", "LEFT", "POD", "GIVEN"],
        ["gpu 0", "partly", "0", "1", "core 50/100, memory 3Gi/8Gi, ratio 38/100", "default/a", half],
        ["default/b", "memory 1Gi, ratio 12, template vir01"],
        ["gpu 1", "unhealthy", "1", "2"],
        ["gpu 2", "full", "-1", "2", "core 0/100, memory 0/8Gi, ratio 0/100", "default/a", whole],
        ["rdma 1", "partly", "0", "1", "rdma 99/100", "default/a", "rdma 1, VF 0000:1f:00.2"],
        ["fpga 0", "free", "-", "-", "fpga 100/100"],
    ]


def test_all_nodes(file):
    sick = [node("s"), device({**gpu(0), "minor": 200}, gpu(1), name="s")]
    gone = bound(pod(), "c", node="gone", gpu=[(0, {"core": 50, "ratio": 50})])
    twice = [used(0, node="t", memory="8Gi"), used(1, node="t", memory="8Gi"), used(0, 1, node="t", memory="8Gi")]
    things = [*machine(), holder(), *h8("h", "Honor"), *sick, node("gone"), gone, *m2("t"), *twice, node("plain")]
    assert shown("-f", file(*things)) == dedent(
        """\
        NODE  REPORT   VENDOR  MODEL  PARTITIONS  GPU FREE                    RDMA FREE      FPGA FREE
        gone  none     -       -      -           0/1, 1 unhealthy            -              -
        h     valid    -       H800   honored     8/8                         8/8            -
        n     valid    nvidia  M2     -           0/3, 1 partly, 1 unhealthy  0/1, 1 partly  1/1
        s     invalid  -       -      -           1/1                         -              -
        t     valid    -       -      -           0/2, 2 OVERCOMMITTED        -              -
        s: devices[0]: gpu 200 is ignored: minors are 0 to 127
        """
    )
    code, answer = run_json("devices", "-f", file(*things))
    assert code == 0
    assert [each["node"] for each in answer["nodes"]] == ["gone", "h", "n", "s", "t"]
    counts = {"type": "gpu", "devices": 3, "free": 0, "partly": 1, "unhealthy": 1, "overcommitted": 0}
    assert answer["nodes"][2]["types"][0] == counts
    assert answer["nodes"][3]["problems"] == ["devices[0]: gpu 200 is ignored: minors are 0 to 127"]


@pytest.mark.parametrize(("policy", "said"), [("Honor", "honored"), ("Prefer", "preferred")])
def test_partitions(file, policy, said):
    (head, *_) = shown("n", "-f", file(*h8(policy=policy))).splitlines()
    assert head == f"Node n, report valid, H800, partitions {said}"


def test_json(file):
    code, answer = run_json("devices", "n", "-f", file(*machine(), holder(), part(0)))
    assert code == 0
    assert answer["node"] == {
        "node": "n",
        "report": "valid",
        "vendor": "nvidia",
        "model": "M2",
        "partitions": "",
        "types": [
            {"type": "gpu", "devices": 3, "free": 0, "partly": 1, "unhealthy": 1, "overcommitted": 0},
            {"type": "rdma", "devices": 1, "free": 0, "partly": 1, "unhealthy": 0, "overcommitted": 0},
            {"type": "fpga", "devices": 1, "free": 1, "partly": 0, "unhealthy": 0, "overcommitted": 0},
        ],
        "problems": [],
    }
    assert [(each["type"], each["minor"]) for each in answer["devices"]] == [
        ("gpu", 0),
        ("gpu", 1),
        ("gpu", 2),
        ("rdma", 1),
        ("fpga", 0),
    ]
    assert answer["devices"][0] == {
        "type": "gpu",
        "minor": 0,
        "state": "partly",
        "numaNode": 0,
        "pcie": "1",
        "amounts": [
            {"resource": CORE, "has": 100, "left": 50},
            {"resource": MEMORY, "has": 8 * GIB, "left": 3 * GIB},
            {"resource": RATIO, "has": 100, "left": 38},
        ],
        "pods": [
            {
                "pod": "default/a",
                "amounts": {CORE: 50, MEMORY: 4 * GIB, RATIO: 50},
                "functions": [],
                "template": "",
            },
            {"pod": "default/b", "amounts": {MEMORY: GIB, RATIO: 12}, "functions": [], "template": "vir01"},
        ],
    }
    assert answer["devices"][3]["pods"][0]["functions"] == ["0000:1f:00.2"]
    assert (answer["devices"][4]["numaNode"], answer["devices"][4]["pcie"]) == (None, "")


def test_more_given_than_there_is(file):
    """Rounded shares may add up to some memory more: that is none."""
    thirds = [
        bound(pod(), f"third-{n}", gpu=[(0, {"memory": (GIB * 8 // 3072 + 1) * 1024, "ratio": 33})]) for n in range(3)
    ]
    text = shown("n", "-f", file(*m2(), *thirds))
    assert "gpu 0   partly          -  -     core 100/100, memory -1Ki/8Gi, ratio 1/100" in text
    text = shown("n", "-f", file(*m2(), *thirds, part(0, "one-more")))
    assert "gpu 0   OVERCOMMITTED" in text
    _, answer = run_json("devices", "n", "-f", file(*m2(), *thirds, part(0, "one-more")))
    assert [each["state"] for each in answer["devices"]] == ["overcommitted", "free"]


def test_a_device_that_pods_hold_and_the_report_lacks(file):
    *_, last = rows(shown("n", "-f", file(*m2(), used(5, memory="8Gi"))))
    assert last == ["gpu 5", "unhealthy", "-", "-", "default/used-n-5", "core 100, memory 8Gi, ratio 100"]


def test_unknown_nodes(file):
    result = run("devices", "m9", "-f", file(*m2()))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", 'error: node "m9" not found\n')
    result = run("devices", "plain", "-f", file(*m2(), node("plain")))
    problem = 'node "plain" has no Device object, and no pod was given devices there'
    assert (result.exit_code, result.stderr) == (1, f"error: {problem}\n")
    assert shown("-f", file(node("plain"))).splitlines() == [
        "NODE  REPORT  VENDOR  MODEL  PARTITIONS  GPU FREE  RDMA FREE  FPGA FREE"
    ]


def test_an_empty_name(file):
    result = run("devices", "", "-f", file(*m2()))
    assert result.exit_code == 2
    assert "NODE is empty" in result.stderr


def test_a_report_that_cannot_be_used_as_a_whole(file):
    things = m2()
    things[1]["metadata"]["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": "null"}
    text = shown("n", "-f", file(*things)).splitlines()
    assert text[:2] == [
        "Node n, report invalid",
        "Problem: annotation scheduling.koordinator.sh/gpu-partitions: null is not a table",
    ]


def test_a_large_machine_stays_readable(file):
    """Sixteen GPUs and as many NICs: a line each."""
    gpus = [gpu(n, "141Gi", (f"0000:{n:02x}", n // 8)) for n in range(16)]
    cards = [nic(n, (f"0000:{n:02x}", n // 8), functions=8) for n in range(16)]
    whole = {"core": 100, "ratio": 100, "memory": 141 * GIB}
    training = bound(pod(), "training-worker-17", gpu=[(n, whole) for n in range(16)])
    lines = shown("n", "-f", file(node(), device(*gpus, *cards), training)).splitlines()
    assert len(lines) == 3 + 32
    assert max(map(len, lines)) <= 140


def test_the_plugin_has_to_be_enabled(file, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    result = run("devices", "n", "-f", file(*m2()), "--config", str(path))
    assert (result.exit_code, result.stderr) == (1, f"error: {path}: no profile enables DeviceShare\n")
