"""Pods refused for devices, on the real scheduler: tried again when it helps, only then."""

import asyncio

import pytest

from tests.plugins.deviceshare.machines import bound, device, g8, gpu, h8, m2, node, pod, topology, used, used_nic
from tests.plugins.deviceshare.naive.books import NODE
from tests.plugins.deviceshare.naive.model import ISOLATION
from tests.plugins.deviceshare.naive.request import MEMORY, NPU_CORE, NPU_CPU
from tests.plugins.deviceshare.randomstates import CONFIGMAP
from tests.plugins.deviceshare.running import cluster, put, remove, replace, where
from tests.virtualtime import run

WAITS = {"name": "waits", "priority": 0}
WHOLE = pod(**WAITS, gpu=100)
PAIR = pod(**WAITS, gpu=200)
HALF = pod(**WAITS, core=50, ratio=50)
NIC = pod(**WAITS, rdma=1)
JOINT = pod(**WAITS, gpu=100, rdma=1, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})

FULL = [*m2(), used(0), used(1)]


def finish(embedded, thing):
    stored = embedded.get("Pod", thing["metadata"]["name"])
    replace(embedded, {**stored, "status": {**stored["status"], "phase": "Succeeded"}})


def m2_with(*gpus, **more):
    return device(*gpus, **more)


def labelled(**labels):
    return node(labels={f"{NODE}{key.replace('_', '-')}": value for key, value in labels.items()})


def aligned(policy="SingleNUMANode", cpu="16"):
    """A node with two NUMA nodes and a GPU in each."""
    machine = node(labels={f"{NODE}numa-topology-policy": policy})
    return [machine, topology("n", 2)]


def two(first=True, second=True):
    return device(gpu(0, place=("0", 0), health=first), gpu(1, place=("1", 1), health=second))


def of_zone(name, numa, cpu):
    """A pod that was given CPU of a NUMA node."""
    made = bound(pod(), name)
    listed = f'{{"numaNodeResources": [{{"node": {numa}, "resources": {{"cpu": "{cpu}"}}}}]}}'
    made["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": listed}
    return made


def changes():
    """(id, the pod that waits, objects, what happens, whether it passes then)."""
    yield "pod deleted", WHOLE, FULL, lambda e: remove(e, used(0)), True
    yield "pod finished", WHOLE, FULL, lambda e: finish(e, used(0)), True
    yield "one of two", PAIR, FULL, lambda e: remove(e, used(0)), False
    plain = bound(pod(), "plain")
    yield "pod without devices deleted", WHOLE, [*FULL, plain], lambda e: remove(e, plain), False
    parts = [*m2(), used(1), *(bound(pod(), f"p{n}", gpu=[(0, {"core": n, "ratio": n})]) for n in (40, 60))]
    yield "a part freed", HALF, parts, lambda e: remove(e, parts[-1]), True
    yield "too small a part freed", HALF, parts, lambda e: remove(e, parts[-2]), False
    twice = bound(pod(), "twice", gpu=[(0, {"core": 100, "ratio": 100})])
    yield "a GPU that another pod holds, too", WHOLE, [*FULL, twice], lambda e: remove(e, twice), False
    yield "another type freed", WHOLE, [*FULL, used_nic(0)], lambda e: remove(e, used_nic(0)), False
    far = [*m2("m"), used(0, node="m"), used(1, node="m")]
    yield "pod of another node deleted", WHOLE, [*FULL, *far], lambda e: remove(e, used(1, node="m")), True

    wrong = pod(**WAITS, core=100)
    yield "an invalid request stays one", wrong, FULL, lambda e: remove(e, used(0)), False

    more = device(*(gpu(n, "8Gi") for n in range(3)))
    yield "a GPU more", WHOLE, FULL, lambda e: replace(e, more), True
    yield "a GPU more than enough is not", PAIR, FULL, lambda e: replace(e, more), False
    yield "the same Device", WHOLE, FULL, lambda e: replace(e, m2()[1]), False
    other_ids = device(*({**gpu(n, "8Gi"), "id": "other"} for n in range(2)))
    yield "other ids", WHOLE, FULL, lambda e: replace(e, other_ids), False
    sick = [node(), device(gpu(0, "8Gi", health=False), gpu(1, "8Gi")), used(1)]
    yield "a GPU heals", WHOLE, sick, lambda e: replace(e, m2()[1]), True
    yield "a GPU that is in use heals", WHOLE, [*sick, used(0)], lambda e: replace(e, m2()[1]), False
    yield "the wrong GPU fails", PAIR, [*m2(), used(1)], lambda e: replace(e, sick[1]), False
    lost = [node(), device(), used(0)]
    yield "Device appears on a full node", PAIR, [node(), used(0)], lambda e: put(e, m2()[1]), False
    yield "Device appears", WHOLE, [node(), used(0)], lambda e: put(e, m2()[1]), True
    yield "Device gets its GPUs", WHOLE, lost, lambda e: replace(e, m2()[1]), True
    yield "Device deleted", WHOLE, FULL, lambda e: remove(e, m2()[1]), False

    yield "node with free GPUs added", WHOLE, [*FULL, m2("m")[1]], lambda e: put(e, node("m")), True
    yield "node without Device added", WHOLE, FULL, lambda e: put(e, node("m")), True
    taken = [*FULL, m2("m")[1], used(0, 1, node="m")]
    yield "full node added", WHOLE, taken, lambda e: put(e, node("m")), False

    hopper = [*h8(model="A100", policy="Honor")]
    yield "model with partitions", PAIR, hopper, lambda e: replace(e, h8(policy="Honor")[0]), True
    yield "another model without", PAIR, hopper, lambda e: replace(e, h8(model="A10", policy="Honor")[0]), False
    broken = [*h8(policy="Honor"), *(used(n, node="n") for n in (0, 2, 4, 6))]
    yield "partitions no longer honoured", PAIR, broken, lambda e: replace(e, h8(policy="Prefer")[0]), True
    yield "a partition freed", PAIR, broken, lambda e: remove(e, used(2)), True
    wide = pod(**WAITS, gpu=200, partition={"ringBusBandwidth": "200Gi"})
    table = '{"2": [{"minors": [0, 1], "allocationScore": 1, "ringBusBandwidth": "%s"}]}'

    def linked(bandwidth):
        annotations = {"scheduling.koordinator.sh/gpu-partitions": table % bandwidth}
        return device(gpu(0, "8Gi"), gpu(1, "8Gi"), annotations=annotations)

    yield "links are wide enough", wide, [node(), linked("100Gi")], lambda e: replace(e, linked("400Gi")), True
    yield "links are not", wide, [node(), linked("100Gi")], lambda e: replace(e, linked("150Gi")), False

    isolated = pod(**WAITS, core=50, ratio=50, labels={ISOLATION: "HAMi-core"})
    args = {"gpuShareUnsupportedModels": [{"vendor": "nvidia", "model": "A10"}]}
    unsupported = [labelled(gpu_vendor="nvidia", gpu_model="A10"), m2()[1]]
    yield "a model that shares", HALF, unsupported, lambda e: replace(e, labelled(gpu_vendor="nvidia")), True, args
    yield (
        "another label",
        HALF,
        unsupported,
        lambda e: replace(e, labelled(gpu_vendor="nvidia", gpu_model="A10", other="x")),
        False,
        args,
    )
    improved = {"improvedAllocation": True}
    yield "isolation", isolated, m2(), lambda e: replace(e, node(labels={ISOLATION: "HAMi-core"})), True, improved
    yield "other isolation", isolated, m2(), lambda e: replace(e, node(labels={ISOLATION: "other"})), False, improved

    ascend = [
        labelled(gpu_vendor="huawei", gpu_model="Ascend-310P3"),
        device(gpu(0, **{NPU_CORE: "8", NPU_CPU: "7", MEMORY: "24Gi", "koordinator.sh/gpu-memory-ratio": "100"})),
    ]
    part = pod(**WAITS, shared=1, npu_core=1, npu_cpu=1, memory=3 << 30)
    yield "templates appear", part, ascend, lambda e: put(e, CONFIGMAP), True
    other = {**CONFIGMAP, "data": {"data.yaml": "huawei-Ascend-310P3: {vir02: {huawei.com/npu-core: 2}}"}}
    yield "other templates appear", part, ascend, lambda e: put(e, other), False
    yield "templates change", part, [*ascend, other], lambda e: replace(e, CONFIGMAP), True
    yield "templates change otherwise", part, [*ascend, other], lambda e: replace(e, {**other, "data": {}}), False
    yield "templates do not help", part, [*ascend, used(0)], lambda e: put(e, CONFIGMAP), False
    yield "templates are no matter", WHOLE, FULL, lambda e: put(e, CONFIGMAP), False

    nics = [*g8(), *(used_nic(n) for n in (1, 2, 3, 4)), *(used(n) for n in (2, 3))]
    yield "NIC next to a free GPU", JOINT, nics, lambda e: remove(e, used_nic(1)), True
    yield "NIC next to none", JOINT, nics, lambda e: remove(e, used_nic(2)), False

    yield "aligned: pod deleted", WHOLE, [*aligned(), two(), used(0), used(1)], lambda e: remove(e, used(0)), True
    heals = [*aligned(), two(first=False), used(1)]
    yield "aligned: a GPU heals", WHOLE, heals, lambda e: replace(e, two()), True
    full_cpus = [*aligned(), two(first=False), of_zone("cpus", 1, "32")]
    yield "aligned: the GPU where CPUs are left heals", WHOLE, full_cpus, lambda e: replace(e, two()), True
    fails = [*aligned(), two(first=False, second=True), of_zone("cpus", 1, "32")]
    yield "aligned: another GPU fails", WHOLE, fails, lambda e: replace(e, two(False, False)), False
    yield "aligned: CPUs are left", WHOLE, full_cpus, lambda e: remove(e, of_zone("cpus", 1, "32")), True
    moved = device(gpu(0, place=("0", 0), health=False), gpu(1, place=("1", 0)))
    yield "aligned: the GPU is elsewhere", WHOLE, full_cpus, lambda e: replace(e, moved), True
    apart = [*aligned(), two()]
    together = device(gpu(0, place=("0", 0)), gpu(1, place=("1", 0)))
    yield "aligned: GPUs side by side", PAIR, apart, lambda e: replace(e, together), True
    yield "aligned: no policy any more", PAIR, apart, lambda e: replace(e, node()), True
    yield "aligned: a laxer policy", PAIR, apart, lambda e: replace(e, aligned("Restricted")[0]), True
    yield (
        "aligned: another label",
        PAIR,
        apart,
        lambda e: replace(e, node(labels={f"{NODE}numa-topology-policy": "SingleNUMANode", "x": "y"})),
        False,
    )
    loose = [*aligned(), device(gpu(0, place=("0", 0), health=False), gpu(1))]
    yield "aligned: no policy, for a GPU without topology", WHOLE, loose, lambda e: replace(e, node()), True
    lonely = [*aligned(), device(gpu(0, place=("0", 0)), gpu(1))]
    yield "aligned: no policy, for another GPU without topology", PAIR, lonely, lambda e: replace(e, node()), True
    yield "aligned: topology is reported", PAIR, lonely, lambda e: replace(e, together), True
    apart_and_free = [*apart, node("m"), device(gpu(0, "8Gi"), name="m"), used(0, node="m")]
    yield "aligned: on another node", WHOLE, [*heals, *apart_and_free[3:]], lambda e: remove(e, used(0, node="m")), True
    templates = [*aligned("Restricted"), two()]
    yield (
        "aligned: templates appear",
        part,
        [
            node(labels={**ascend[0]["metadata"]["labels"], **templates[0]["metadata"]["labels"]}),
            templates[1],
            device({**ascend[1]["spec"]["devices"][0], "topology": {"socketID": -1, "nodeID": 0, "pcieID": "0"}}),
            {**CONFIGMAP, "data": {"data.yaml": CONFIGMAP["data"]["data.yaml"].replace("Ascend-310P3", "another")}},
        ],
        lambda e: replace(e, CONFIGMAP),
        True,
    )


def cases():
    for name, waiting, objects, change, helps, *args in changes():
        yield pytest.param(waiting, objects, change, helps, *(args or [None]), id=name)


@pytest.mark.parametrize(("waiting", "objects", "change", "helps", "args"), list(cases()))
def test_tried_again_when_it_fits_and_only_then(waiting, objects, change, helps, args):
    async def scenario():
        async with cluster(*objects, args=args) as (embedded, running):
            put(embedded, waiting)
            await asyncio.sleep(15)
            assert where(embedded, "waits") is None
            assert running.attempts["default/waits"] == 1
            change(embedded)
            await asyncio.sleep(2)
            return where(embedded, "waits") is not None, running.attempts["default/waits"]

    assert run(scenario()) == (helps, 2 if helps else 1)
