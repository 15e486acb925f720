from pathlib import Path

import pytest

from koordsched.fakecluster.hollow.nodeobjects import node_address, node_object, plan_nodes
from koordsched.fakecluster.hollow.templates import TemplateError, load_templates, share_out
from tests.fakecluster.timeline import Cluster

EXAMPLES = sorted((Path(__file__).parents[2] / "config" / "examples" / "node-templates").iterdir())
CAPACITY = {"cpu": 4, "memory": "8Gi"}


def template(**fields):
    return {"templates": [{"capacity": CAPACITY, **fields}]}


# content -> message
BAD = [
    ({}, "node template: Object missing required field `templates`"),
    ({"templates": []}, "node template: templates: at least one is needed"),
    ({"templates": [{}]}, "node template: Object missing required field `capacity` - at `$.templates[0]`"),
    (template(weigth=3), "node template: Object contains unknown field `weigth` - at `$.templates[0]`"),
    (template(count=1, weight=1), "node template: templates[0]: count and weight exclude each other"),
    (template(count=-1), "node template: templates[0]: count and weight must not be negative"),
    (
        template(nodeName="${name}"),
        "node template: templates[0].nodeName: ${name} is not known, only ${index} and ${zone} are",
    ),
    (template(objects=[{"kind": "X"}]), "node template: templates[0].objects[0]: apiVersion and kind are needed"),
    (
        {"templates": [{"capacity": {"cpu": "4x"}}]},
        "node template: templates[0].capacity.cpu: quantity '4x' must match",
    ),
    (
        {"templates": [{"capacity": {"cpu": "-4"}}]},
        "node template: templates[0].capacity.cpu: '-4' must not be negative",
    ),
    (template(taints=[{"key": "k"}]), "node template: Object missing required field `effect`"),
]


@pytest.mark.parametrize("content, message", BAD)
def test_bad_templates_say_what_is_wrong(content, message):
    with pytest.raises(TemplateError) as caught:
        load_templates(content)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "text, message",
    [
        ("templates: [", "not valid YAML"),
        ("templates: 3", "Expected `array`, got `int`"),
        (None, "No such file or directory"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "nodes.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TemplateError, match=message) as caught:
        load_templates(path)
    assert str(caught.value).startswith(f"{path}: ")


# counts and weights, nodes asked for -> shares, or the error
SHARES = [
    ([{"weight": 90}, {"weight": 6}, {"weight": 4}], 100, [90, 6, 4]),
    ([{"weight": 90}, {"weight": 6}, {"weight": 4}], 10, [9, 1, 0]),
    ([{"weight": 90}, {"weight": 6}, {"weight": 4}], 5000, [4500, 300, 200]),
    ([{}, {}, {}], 100, [34, 33, 33]),
    ([{"count": 3}, {"weight": 1}], 10, [3, 7]),
    ([{"count": 3}, {}], 10, [3, 7]),
    ([{"count": 3}, {"count": 2}], None, [3, 2]),
    ([{"count": 3}, {"count": 2}], 5, [3, 2]),
    ([{"weight": 0}, {"weight": 1}], 4, [0, 4]),
    ([{"weight": 1}], 0, [0]),
    ([{"weight": 1}], None, "the number of nodes is needed: not every template states a count"),
    ([{"count": 3}], 2, "2 nodes are fewer than the 3 that the templates count"),
    ([{"count": 3}], 4, "4 nodes are more than the 3 that the templates count, and none has a weight"),
]


@pytest.mark.parametrize("entries, total, expected", SHARES)
def test_nodes_are_shared_out(entries, total, expected):
    templates = load_templates({"templates": [{"capacity": CAPACITY, **entry} for entry in entries]})
    if isinstance(expected, str):
        with pytest.raises(TemplateError) as caught:
            share_out(templates, total)
        assert str(caught.value) == expected
    else:
        assert share_out(templates, total) == expected


def test_names_zones_and_addresses():
    content = template(nodeName="${zone}-${index}", zones=["a", "b"], region="r")
    planned = plan_nodes(load_templates(content), 12)
    assert [node.name for node in planned][:3] == ["a-00", "b-01", "a-02"]
    node = node_object(planned[3], 0.0)
    labels = node["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "b"
    assert labels["topology.kubernetes.io/region"] == "r"
    assert labels["kubernetes.io/hostname"] == "b-03"
    assert len({node_address(number) for number in range(5000)}) == 5000
    assert (node_address(0), node_address(255), node_address(65536)) == ("172.16.0.1", "172.16.1.0", "172.17.0.1")


def test_a_name_given_twice_is_refused():
    with pytest.raises(TemplateError, match="gives the name 'node' twice"):
        plan_nodes(load_templates(template(nodeName="node")), 2)


def test_everything_in_a_template_reaches_the_cluster():
    content = template(
        zones=["a"],
        labels={"example.com/rack": "rack-${index}"},
        annotations={"example.com/where": "${node} in ${zone}"},
        taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        allocatable={"cpu": "3500m"},
        images=[{"names": ["app:1"], "sizeBytes": 123}],
        csiDrivers=[{"name": "d.example.com", "topologyKeys": ["t"], "allocatable": {"count": 9}}],
        objects=[
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "about-${node}", "namespace": "default"},
                "data": {"zone": "${zone}", "kept": "${other}"},
            }
        ],
    )
    cluster = Cluster(nodes=1, template=content)
    node = cluster.get("nodes", "node-0")
    assert node["metadata"]["labels"]["example.com/rack"] == "rack-0"
    assert node["metadata"]["annotations"]["example.com/where"] == "node-0 in a"
    assert node["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert node["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert node["status"]["allocatable"] == {"cpu": "3500m", "memory": "8Gi", "pods": "110"}
    assert node["status"]["images"] == [{"names": ["app:1"], "sizeBytes": 123}]
    driver = {"nodeID": "node-0", "name": "d.example.com", "topologyKeys": ["t"], "allocatable": {"count": 9}}
    assert cluster.get("csinodes", "node-0")["spec"]["drivers"] == [driver]
    about = cluster.get("configmaps", "about-node-0")
    assert about["data"] == {"zone": "a", "kept": "${other}"}
    # What was made with the node goes with it.
    cluster.delete("nodes", "node-0")
    cluster.run(1)
    assert not cluster.exists("configmaps", "about-node-0")
    assert not cluster.exists("csinodes", "node-0")
    assert not cluster.exists("leases", "node-0", "kube-node-lease")


def test_objects_of_a_kind_that_is_defined_later_are_made_then():
    topology = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "zones": []}
    cluster = Cluster(nodes=2, template=template(objects=[topology]))
    cluster.run(10)
    versions = [
        {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    ]
    names = {
        "plural": "noderesourcetopologies",
        "kind": "NodeResourceTopology",
        "singular": "noderesourcetopology",
        "listKind": "NodeResourceTopologyList",
    }
    cluster.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "noderesourcetopologies.topology.node.k8s.io"},
            "spec": {"group": "topology.node.k8s.io", "names": names, "scope": "Cluster", "versions": versions},
        }
    )
    cluster.run(5)
    found = {entry["metadata"]["name"] for entry in cluster.list("noderesourcetopologies")}
    assert found == {"node-0", "node-1"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path):
    assert len(plan_nodes(load_templates(path), 20)) == 20


def test_nodes_with_a_fault_say_so():
    cluster = Cluster(nodes=1, template=template(faults={"startError": "RunContainerError"}))
    annotations = cluster.get("nodes", "node-0")["metadata"]["annotations"]
    assert annotations == {"koordsched.io/hollow": "true", "koordsched.io/start-error": "RunContainerError"}
    with pytest.raises(TemplateError, match="unknown field `start`"):
        load_templates(template(faults={"start": "x"}))
