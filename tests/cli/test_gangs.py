"""Gangs that do not fit, as `simulate`, `explain` and `gang show` say it of files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from koordsched.__main__ import main
from koordsched.cli.simulate import SOME_PENDING

EXAMPLES = Path(__file__).parents[2] / "config/examples/gangs"
TOPOLOGY = EXAMPLES / "topology"


def files(folder, *names):
    named = [part for name in names for part in ("-f", str(folder / name))]
    return [
        *named,
        "--config",
        str(folder / "scheduler.yaml"),
        "--node-template",
        str(folder / "node-template.yaml"),
    ]


def koordsched(*args):
    return CliRunner().invoke(main, [*args])


def answer(*args):
    return json.loads(koordsched(*args, "-o", "json").stdout)


GATHERED = (*files(TOPOLOGY, "too-large.yaml", "network-topology.yaml"), "--enable-network-topology-manager")


def test_a_gang_that_does_not_fit_is_one_paragraph_that_says_what_it_lacks():
    found = koordsched("simulate", *files(EXAMPLES, "too-large.yaml", "job.yaml"))
    assert found.exit_code == SOME_PENDING
    assert found.stdout.count("pending") == 2  # the gang, and "of 9 pending pods placed"
    assert "pending together: default/training (4 pods)" in found.stdout
    assert "default/training-4 has none; 3 of the pods have a place." in found.stdout
    assert "4 nodes (node-0, node-1, node-2 and 1 more), NodeResourcesFit: Insufficient cpu" in found.stdout
    assert "Closest: node-0, needed: 4 cpu more free" in found.stdout
    assert "It fits" not in found.stdout


def test_the_same_as_json():
    report = answer("simulate", *files(EXAMPLES, "too-large.yaml", "job.yaml"))
    (job,) = report["jobs"]
    assert (job["name"], job["refused"], job["complete"]) == ("default/training", "default/training-4", False)
    assert list(job["nodes"]) == ["default/training-1", "default/training-2", "default/training-3"]
    assert job["refusals"] == [
        {
            "plugin": "NodeResourcesFit",
            "reasons": ["Insufficient cpu"],
            "nodes": 4,
            "examples": ["node-0", "node-1", "node-2"],
        }
    ]
    pending = [pod for pod in report["pods"] if "node" not in pod]
    assert [pod["job"] for pod in pending] == ["default/training"] * 4
    assert not any("advice" in pod for pod in pending)
    assert all(pod["feasibleNodes"] >= 1 for pod in report["pods"] if "node" in pod)


def test_explain_says_that_a_member_which_fits_alone_waits_for_the_others():
    found = koordsched("explain", "wide-2", *GATHERED).stdout
    assert "Pending: it is placed together with others. Alone it could go to any of a-0" in found
    assert "Goes to" not in found


@pytest.mark.parametrize(
    "gate", [["--enable-network-topology-manager"], ["--feature-gates", "NetworkTopologyManager=1"]]
)
def test_gathered_gangs_are_planned_offline(gate):
    found = koordsched("simulate", *files(TOPOLOGY, "job.yaml", "network-topology.yaml"), *gate)
    assert found.exit_code == 0
    assert sorted(line.split()[1] for line in found.stdout.splitlines() if "training-" in line) == [
        "c-0",
        "c-0",
        "c-1",
        "c-1",
    ]


def test_a_gang_that_no_domain_holds_shows_what_each_offers():
    found = koordsched("simulate", *GATHERED)
    assert "5 members, in one domain of RackLayer" in found.stdout
    assert "RackLayer r3, 2 nodes, room for 4" in found.stdout
    shown = koordsched("gang", "show", "default/wide", *GATHERED)
    assert "RackLayer r3, 2 nodes, room for 4" in shown.stdout
    network = answer("gang", "show", "default/wide", *GATHERED)["network"]
    assert (network["desired"], network["mustGather"], network["root"]["offers"]) == (5, "RackLayer", 12)


def test_an_unknown_gate_is_refused():
    found = koordsched("simulate", *files(EXAMPLES, "job.yaml"), "--feature-gates", "Nonsense=true")
    assert found.exit_code == 2
    assert "unrecognized feature gate: Nonsense" in found.stderr
