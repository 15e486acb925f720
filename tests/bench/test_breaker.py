"""`python -m bench.breaker` as a whole, on small clusters, and what its simulation reckons with."""

import json
from random import Random

import pytest
from click.testing import CliRunner

from bench.breaker.__main__ import main
from bench.breaker.simulation import START_SECONDS, Simulation
from bench.breaker.workload import LARGE, Wish, wishes
from koordsched import config

DEFAULT = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'


def simulation(workload, nodes, broken, give_up=30.0):
    return Simulation(config.resolve(config.load(DEFAULT)), nodes, broken, workload, give_up, seed=1)


def test_pods_run_where_nothing_is_broken():
    outcome = simulation([Wish(0.0, LARGE), Wish(0.0, LARGE), Wish(7.0, "small")], nodes=2, broken=0).run(20)
    assert outcome.failures == {}
    assert (outcome.large, outcome.everything, outcome.mean_wait) == (1.0, START_SECONDS, START_SECONDS)
    assert [(moment.wanted, moment.running) for moment in outcome.moments] == [(3, 3), (3, 3)]


def test_a_pod_that_fails_comes_back_until_the_end():
    outcome = simulation([Wish(0.0, LARGE)], nodes=1, broken=1).run(100)
    # Fails at 1, 32, 63 and 94: each time it is replaced after half a minute, and placed in the same second.
    assert outcome.failures == {"node-0000": 4}
    assert (outcome.large, outcome.everything, outcome.mean_wait) == (None, None, 100.0)


def test_the_workload_is_the_same_for_every_configuration():
    one, other = (list(wishes(5, 600, Random(5))) for _ in range(2))
    assert one == other
    assert [wish.deployment for wish in one[:6]].count(LARGE) == 5
    assert one == sorted(one, key=lambda wish: wish.at)


def test_the_command(tmp_path):
    flags = ["--nodes", "40", "--broken", "2", "--pods", "80", "--minutes", "20", "--out", str(tmp_path)]
    ran = CliRunner().invoke(main, flags, catch_exceptions=False)
    assert ran.exit_code == 0
    outcomes = json.loads((tmp_path / "breaker.json").read_text())["outcomes"]
    without, default, one = (outcomes[name]["moments"][-1] for name in ("without", "with", "one workload is enough"))
    assert without["failures"] > 3 * default["failures"] > 3 * one["failures"] > 0
    assert without["wanted"] > without["running"]
    assert default["wanted"] == default["running"] == one["running"] == without["wanted"]
    assert (tmp_path / "breaker.svg").read_text().count("<polyline") == 3


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config", "none.yaml"], "expected NAME=FILE"),
        (["--config", "a=none.yaml"], "none.yaml"),
        (["--broken", "3", "--nodes", "2"], "only 2 nodes"),
    ],
)
def test_what_cannot_be_run(flags, message, tmp_path):
    ran = CliRunner().invoke(main, [*flags, "--out", str(tmp_path)])
    assert ran.exit_code != 0
    assert message in str(ran.exception)
