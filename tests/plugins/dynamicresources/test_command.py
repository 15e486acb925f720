"""`koordsched devices`, `explain` and `simulate` about claims, on files: what people read, and what programs do."""

import pytest

from tests.cli.clusters import run, run_json, write
from tests.plugins.dynamicresources.deviceworld import GROUP, allocated, claim, claiming, device_class, slice_of
from tests.plugins.objects import container, node


@pytest.fixture
def file(tmp_path):
    """Writes objects to a file; returns its name."""
    return lambda *things, name="cluster.yaml": write(tmp_path / name, *things)


def template(name="t", count=1, **exactly):
    """A template of claims for devices of the class `dc`."""
    request = {"name": "r", "exactly": {"deviceClassName": "dc", "count": count, **exactly}}
    return {
        "apiVersion": GROUP,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"metadata": {"labels": {"made": "of-t"}}, "spec": {"devices": {"requests": [request]}}},
    }


def manifest(thing):
    """As it is before a server has it."""
    return {**thing, "metadata": {key: value for key, value in thing["metadata"].items() if key != "uid"}}


TAINT = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}


def cluster():
    """`n1` has a free device, one in use, a tainted one and a small one; `n2` has an incomplete pool, `n3` nothing."""
    memory = {"capacity": {"memory": {"value": "80Gi"}}}
    sizes = ("80Gi", "80Gi", "80Gi", "8Gi")
    devices = [
        (f"d{at}", {"capacity": {"memory": {"value": size}}, **(TAINT if at == 2 else {})})
        for at, size in enumerate(sizes)
    ]
    late = slice_of("n2", ("d0", memory))
    late["spec"]["pool"]["resourceSliceCount"] = 2
    big = "device.capacity['drv'].memory.compareTo(quantity('40Gi')) >= 0"
    holder = claiming("holder", "held", nodeName="n1")
    holder["status"] = {"phase": "Running"}
    return [
        *(node(name) for name in ("n1", "n2", "n3")),
        device_class(selectors=[{"cel": {"expression": big}}]),
        slice_of("n1", *devices),
        late,
        claim("held", status=allocated("d1", users=["holder"])),
        holder,
    ]


def shown(*arguments, code=0):
    """What a command prints, without the blanks that end lines."""
    result = run(*arguments)
    assert result.exit_code == code, result.stderr
    return [line.rstrip() for line in result.stdout.splitlines()]


def answer_of(*arguments, code=0):
    """What a command answers programs."""
    exit_code, answer = run_json(*arguments)
    assert exit_code == code
    return answer


# --- devices -----------------------------------------------------------------------------------------------


def test_pools_of_nodes(file):
    assert shown("devices", "-f", file(*cluster())) == [
        "NODE  DRIVER  POOL  STATE       DEVICES  FREE  ALLOCATED  SHARED  BLOCKED  TAINTED",
        "n1    drv     n1    usable            4     3          1       0        0        1",
        "n2    drv     n2    incomplete        1     1          0       0        0        0",
        "drv/n2: 1 of 2 slices of generation 1",
    ]


def test_a_node_device_by_device(file):
    objects = [*cluster(), claim("gone", status=allocated("d9", users=["a", "b"]))]
    assert shown("devices", "n1", "-f", file(*objects)) == [
        "drv/n1: 3 of 4 devices free",
        "drv/n1: claims have 1 device that the driver does not publish any more",
        "DEVICE  STATE      TAINTS             CLAIM         REQUEST  PODS",
        "d0      free       -                  -             -        -",
        "d1      allocated  -                  default/held  r        default/holder",
        "d2      free       broken:NoSchedule  -             -        -",
        "d3      free       -                  -             -        -",
        "d9      gone       -                  default/gone  r        default/a, default/b",
    ]
    assert shown("devices", "n2", "-f", file(*objects)) == [
        "drv/n2: 1 of 1 devices free, incomplete",
        "drv/n2: 1 of 2 slices of generation 1",
        "DEVICE  STATE  CLAIM  REQUEST  PODS",
        "d0      free   -      -        -",
    ]


def test_counters_and_shares(file):
    takes = {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "40"}}}]}
    half = {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "20"}}}]}
    counters = slice_of("n1", name="a", sharedCounters=[{"name": "s", "counters": {"m": {"value": "40"}}}])
    del counters["spec"]["devices"]
    multi = {"allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    parts = slice_of("n1", ("full", takes), ("half0", half), ("half1", half), ("shared", multi), name="b")
    for each in (counters, parts):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    shared = allocated(
        "shared", users=["x"], shareID="0c6b5a4e-0000-4000-8000-000000000000", consumedCapacity={"bw": "4"}
    )
    objects = [node("n1"), counters, parts, claim("half", status=allocated("half0")), claim("part", status=shared)]
    answer = answer_of("devices", "n1", "-f", file(*objects))
    assert {device["device"]: device["state"] for device in answer["poolDevices"]} == {
        "full": "blocked",
        "half0": "allocated",
        "half1": "free",
        "shared": "shared",
    }
    (pool,) = answer["pools"]
    found = {key: pool[key] for key in ("node", "nodes", "slices", "expected", "free", "blocked", "shared", "state")}
    assert found == {
        "node": "n1",
        "nodes": 1,
        "slices": 2,
        "expected": 2,
        "free": 1,
        "blocked": 1,
        "shared": 1,
        "state": "usable",
    }
    (user,) = answer["poolDevices"][3]["claims"]
    assert user == {
        "claim": "default/part",
        "request": "r",
        "pods": ["default/x"],
        "inFlight": False,
        "adminAccess": False,
        "consumed": {"bw": "4"},
    }


def test_a_line_for_each_claim_that_shares_a_device(file):
    shares = {"allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    claims = [
        claim(name, status=allocated("d0", users=[f"of-{name}"], shareID=share, consumedCapacity={"bw": "4"}))
        for name, share in (
            ("a", "0c6b5a4e-0000-4000-8000-000000000000"),
            ("b", "0c6b5a4e-0000-4000-8000-000000000001"),
        )
    ]
    objects = [node("n1"), slice_of("n1", ("d0", shares | TAINT), "d1"), *claims]
    assert shown("devices", "n1", "-f", file(*objects)) == [
        "drv/n1: 1 of 2 devices free",
        "DEVICE  STATE   TAINTS             CLAIM      REQUEST  PODS",
        "d0      shared  broken:NoSchedule  default/a  r, bw 4  default/of-a",
        "                                   default/b  r, bw 4  default/of-b",
        "d1      free    -                  -          -        -",
    ]


def test_pools_of_several_nodes_and_of_none(file):
    everyone = slice_of("fabric", "a", name="f")
    del everyone["spec"]["nodeName"]
    everyone["spec"]["allNodes"] = True
    objects = [node("n1"), node("n2"), everyone, slice_of("n9", "b")]
    answer = answer_of("devices", "-f", file(*objects))
    assert [(pool["pool"], pool["node"], pool["nodes"]) for pool in answer["pools"]] == [
        ("fabric", "", 2),
        ("n9", "", 0),
    ]
    assert shown("devices", "-f", file(*objects))[1].startswith("2 nodes  drv     fabric  usable")
    assert answer["nodes"] == []


def test_an_invalid_pool_says_why(file):
    twice = slice_of("n1", "d0", "d0")
    twice["metadata"]["uid"] = "u"
    answer = answer_of("devices", "-f", file(node("n1"), twice))
    assert [(pool["state"], pool["problem"]) for pool in answer["pools"]] == [("invalid", "duplicate device name d0")]


def test_a_node_that_is_unknown_or_reaches_nothing(file):
    path = file(*cluster())
    for name, text in (("n9", 'node "n9" not found'), ("n3", 'node "n3" has no Device object')):
        result = run("devices", name, "-f", path)
        assert result.exit_code == 1
        assert text in result.stderr


# --- explain -----------------------------------------------------------------------------------------------


def explained(file, pod, *objects):
    """The explanation of a pod on the cluster, as JSON."""
    return answer_of("explain", pod, "-f", file(*cluster(), *objects))


def test_devices_by_what_speaks_against_them(file):
    answer = explained(file, "p", manifest(claim("c", count=2)), manifest(claiming("p", "c")))
    details = {each["name"]: each["details"]["DynamicResources"] for each in answer["nodes"]}
    assert details == {
        "n1": ["claim default/c, request r: needs 2, 1 available, 1 in use, 1 not selected, 1 tainted"],
        "n2": ["claim default/c, request r: needs 2, 0 available", "pool drv/n2 is incomplete"],
        "n3": ["claim default/c, request r: needs 2, 0 available"],
    }
    assert answer["message"].startswith("0/3 nodes are available: 3 cannot allocate all claims.")
    assert answer["advice"]["verdict"] == "waits"
    assert answer["advice"]["text"] == "It waits for devices: n1 has enough of them, which other claims have."
    assert answer["advice"]["remedies"][0]["changes"] == [
        {"plugin": "DynamicResources", "text": "1 more device free for claim default/c, request r"}
    ]


def test_the_nearest_node_is_where_devices_are_in_use(file):
    holder = claim("more", status=allocated("d0", users=["other"], where="n4"))
    objects = [node("a0"), node("n4"), slice_of("n4", ("d0", {"capacity": {"memory": {"value": "80Gi"}}})), holder]
    lines = shown(
        "explain", "p", "-f", file(*cluster(), *objects, manifest(claim("c", count=2)), manifest(claiming("p", "c")))
    )
    assert "It waits for devices: n1 has enough of them, which other claims have." in lines


def test_what_no_node_has(file):
    wanted = [manifest(claim("c", count=3)), manifest(claiming("p", "c"))]
    answer = explained(file, "p", *wanted)
    assert answer["advice"]["text"] == "It waits for the driver to complete a pool of n2."
    complete = [each for each in cluster() if each["metadata"]["name"] != "s-n2"]
    answer = answer_of("explain", "p", "-f", file(*complete, *wanted))
    assert answer["advice"]["verdict"] == "never"
    text = "a node with 3 devices for claim default/c, request r (this one has 1, 1 not selected, 1 tainted)"
    assert answer["advice"]["remedies"][0]["changes"] == [{"plugin": "DynamicResources", "text": text}]


def test_requests_that_do_not_go_together(file):
    wanted = manifest(claim("c"))
    wanted["spec"]["devices"]["requests"].append({"name": "s", "exactly": {"deviceClassName": "dc"}})
    answer = explained(file, "p", wanted, manifest(claiming("p", "c")))
    (details,) = [each["details"]["DynamicResources"] for each in answer["nodes"] if each["name"] == "n1"]
    assert details[-1] == "each request has enough devices by itself, but they do not go together"


def test_nodes_that_say_the_same_are_shown_once(file):
    lines = shown("explain", "p", "-f", file(*cluster(), manifest(claim("c", count=2)), manifest(claiming("p", "c"))))
    assert "n1, DynamicResources:" in lines
    many = [node(f"m{at}") for at in range(4)]
    objects = [*cluster(), *many, manifest(claim("c", count=2)), manifest(claiming("p", "c"))]
    lines = shown("explain", "p", "-f", file(*objects))
    assert "m0, m1, m2 and 2 more, DynamicResources:" in lines
    assert "n1, DynamicResources:" in lines


def test_an_allocated_claim_keeps_the_pod_on_its_node(file):
    answer = explained(file, "p", manifest(claiming("p", "held")), device_class("other"))
    assert answer["notes"]["DynamicResources"] == [
        "claim default/held has drv/n1/d1, usable on node n1, reserved for default/holder"
    ]
    assert {each["name"]: each["feasible"] for each in answer["nodes"]} == {"n1": True, "n2": False, "n3": False}
    details = {each["name"]: each["details"].get("DynamicResources") for each in answer["nodes"]}
    assert details["n3"] == ["claim default/held can be used on node n1 only, reserved for default/holder"]


def test_an_idle_claim_elsewhere_is_freed(file):
    idle = claim("idle", status=allocated("d0"))
    pod = manifest(claiming("p", "idle", nodeSelector={"kubernetes.io/hostname": "n2"}))
    answer = explained(file, "p", idle, pod)
    assert "deallocation of ResourceClaim completed" in answer["message"]
    assert answer["advice"]["text"] == (
        "It waits for claim default/idle to be freed, which no pod uses and the scheduler frees."
    )


@pytest.mark.parametrize(
    ("claims", "objects", "problem", "states"),
    [
        (["c"], [], 'could not find ResourceClaim "default/c"', [("default/c", "missing")]),
        (
            [("gpu", None), "held"],
            [],
            "ResourceClaim not created yet",
            [("", "not created yet"), ("default/held", "allocated")],
        ),
        (
            ["going"],
            [claim("going", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])],
            'resourceclaim "going" is being deleted',
            [("default/going", "being deleted")],
        ),
    ],
)
def test_claims_that_keep_a_pod_out_of_the_queue(file, claims, objects, problem, states):
    answer = explained(file, "p", claiming("p", *claims), *objects)
    assert answer["gatedBy"] == "DynamicResources"
    assert problem in answer["refusal"]["problem"]
    assert [(each["claim"], each["state"]) for each in answer["refusal"]["claims"]] == states


def test_a_missing_class_is_a_refusal(file):
    wanted = manifest(claim("c"))
    wanted["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nope"
    objects = [*cluster(), wanted, manifest(claiming("p", "c", "held"))]
    answer = answer_of("explain", "p", "-f", file(*objects))
    assert answer["rejectedBy"] == "DynamicResources"
    assert answer["refusal"]["problem"] == "request r: device class nope does not exist"
    lines = shown("explain", "p", "-f", file(*objects))
    at = lines.index("ENTRY  CLAIM         STATE          DEVICES    USABLE ON  PODS")
    assert lines[at + 1 : at + 3] == [
        "e0     default/c     not allocated  -          -          -",
        "e1     default/held  allocated      drv/n1/d1  node n1    default/holder",
    ]


# --- simulate ----------------------------------------------------------------------------------------------


def test_claims_of_templates(file):
    pods = [manifest(claiming(name, ("gpu", None))) for name in ("p", "q")]
    answer = answer_of("simulate", "-f", file(*cluster(), template(), *pods), code=3)
    assert "2 ResourceClaims made from templates in default" in answer["notes"]
    outcomes = {each["pod"]: each for each in answer["pods"]}
    (line,) = outcomes["default/p"]["given"]["DynamicResources"]
    assert line.startswith("claim default/p-gpu-")
    assert line.endswith(": r = drv/n1/d0")
    assert outcomes["default/q"]["advice"]["verdict"] == "waits"


def test_the_devices_are_printed(file):
    lines = shown("simulate", "-f", file(*cluster(), manifest(claim("c")), manifest(claiming("p", "c"))))
    assert "default/p: claim default/c: r = drv/n1/d0" in lines


def test_pods_that_share_a_claim_follow_each_other(file):
    objects = [manifest(claim("c")), manifest(claiming("p", "c")), manifest(claiming("q", "c"))]
    answer = answer_of("simulate", "-f", file(*cluster(), *objects))
    assert [each["given"]["DynamicResources"] for each in answer["pods"]] == [["claim default/c: r = drv/n1/d0"]] * 2
    assert {each["node"] for each in answer["pods"]} == {"n1"}


def test_extended_resources(file):
    wants = container(name="m", cpu="100m")
    wants["resources"]["limits"] = {"ex.com/gpu": "1"}
    objects = [each for each in cluster() if each["kind"] != "DeviceClass"]
    big = device_class(extendedResourceName="ex.com/gpu")
    pods = [manifest(claiming(name, containers=[wants])) for name in ("p", "q", "r")]
    answer = answer_of("simulate", "-f", file(*objects, big, *pods), code=3)
    given = [each["given"]["DynamicResources"] for each in answer["pods"] if each.get("node")]
    assert given == [
        ["claim default/p-extended-resources: container-0-request-1 = drv/n1/d0"],
        ["claim default/q-extended-resources: container-0-request-1 = drv/n1/d3"],
    ]


def test_a_dump_is_taken_as_it_is(file):
    pod = {**claiming("p", ("gpu", None))}
    assert pod["metadata"]["uid"]
    answer = answer_of("simulate", "-f", file(*cluster(), template(), pod), code=3)
    assert answer["pods"][0]["message"] == 'pod "default/p": ResourceClaim not created yet'


@pytest.mark.parametrize("way", ["like", "template"])
def test_more_nodes_have_devices(file, tmp_path, way):
    path = file(*cluster(), manifest(claim("c", count=2)), manifest(claiming("p", "c")))
    if way == "like":
        more = ("--nodes", "1", "--like", "n1")
    else:
        made = {"nodeName": "new-${index}", "count": 1, "capacity": {"cpu": 8, "memory": "8Gi"}}
        made["drivers"] = [{"name": "drv", "devices": [{"name": "g", "count": 2, "capacity": {"memory": "80Gi"}}]}]
        more = ("--node-template", write(tmp_path / "nodes.yaml", {"templates": [made]}))
    (pod,) = answer_of("simulate", "-f", path, *more)["pods"]
    (line,) = pod["given"]["DynamicResources"]
    if way == "like":
        assert (pod["node"], line) == (
            "n1-copy-1",
            "claim default/c: r = drv/n1-copy-1/d0, drv/n1-copy-1/d1",
        )
    else:
        assert (pod["node"], line) == ("new-0", "claim default/c: r = drv/new-0/g-0, drv/new-0/g-1")


def test_a_configuration_with_the_plugins_arguments_is_checked(tmp_path):
    given = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "-1s"}}]}],
    }
    result = run("check-config", write(tmp_path / "config.yaml", given))
    assert result.exit_code == 1
    assert "must be zero or positive" in result.output


def test_claims_of_templates_of_groups(file):
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    pods = [manifest(claiming(name, ("gpu", None), schedulingGroup={"podGroupName": "g"})) for name in ("p", "q")]
    gates = "GenericWorkload=true,GangScheduling=true,DRAWorkloadResourceClaims=true"
    answer = answer_of("simulate", "-f", file(*cluster(), template(), group, *pods), "--feature-gates", gates, code=0)
    assert "1 ResourceClaims made from templates in default" in answer["notes"]
    given = {each["pod"]: each["given"]["DynamicResources"] for each in answer["pods"]}
    (line,) = given["default/p"]
    assert line.startswith("claim default/g-gpu-")
    assert line.endswith(": r = drv/n1/d0")
    assert given["default/q"] == [line]
