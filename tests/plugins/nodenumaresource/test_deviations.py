"""What differs from upstream on purpose (docs/deviations.md), where no other test shows it."""

import json

import orjson
import pytest
from click.testing import CliRunner

from koordsched.cli.check_config import check_config
from koordsched.plugins.nodenumaresource.kinds import RESOURCE_SPEC
from tests.plugins.nodenumaresource.cluster import Cluster, configuration
from tests.plugins.nodenumaresource.machines import detail, holder, node, topology

CPUS = detail(1, 2, 4)


def held(cluster):
    """A bit set of the CPUs that pods hold on the node."""
    return cluster.columns.held(cluster.table.row_of["m1"])


def test_cpus_count_where_the_topology_is_unknown_or_the_other_annotation_malformed():
    cluster = Cluster(node())
    whole, malformed = holder("whole", "0-3", cpu="4"), holder("malformed", "4-5", cpu="2")
    malformed["metadata"]["annotations"][RESOURCE_SPEC] = "{"
    for thing in (whole, malformed):
        thing["metadata"]["uid"] = thing["metadata"]["name"]
        cluster.put(thing)
    assert held(cluster) == 0b111111
    cluster.put(topology(CPUS))
    assert held(cluster) == 0b111111


@pytest.mark.parametrize("numbers", [range(9), [0, 2]])
def test_too_many_numa_nodes_and_gaps_are_none_reported(numbers):
    cluster = Cluster(node())
    report = topology(CPUS, zones=[("4", "8Gi")] * len(numbers))
    for zone, number in zip(report["zones"], numbers, strict=True):
        zone["name"] = f"node-{number}"
    cluster.put(report)
    known = cluster.plugin.nodes.of_node("m1")
    assert known.zones == ()
    assert "zones must be node-0, node-1, ..., at most 8" in known.options.problems


def test_resources_of_the_numa_strategy_have_no_effect_which_is_said():
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}
    text = orjson.dumps(configuration({"numaScoringStrategy": strategy})).decode()
    result = CliRunner().invoke(check_config, ["-"], input=text)
    assert result.exit_code == 0
    assert "numaScoringStrategy.resources has no effect" in result.stderr
    without = json.dumps(configuration({"numaScoringStrategy": {"type": "MostAllocated"}}))
    assert "no effect" not in CliRunner().invoke(check_config, ["-"], input=without).stderr
