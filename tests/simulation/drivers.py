"""Drivers: the devices of nodes and of the network, published in ResourceSlices, and what they say of allocations."""

from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.claimobjects import (
    API_VERSION,
    FAILED,
    FINALIZER,
    GPU,
    NIC,
    READY,
    TAINT,
    TPU,
    allocation_of,
    gpu,
    partitions,
    results_of,
    shared_gpu,
    slow_gpu,
)

SLICE = "ResourceSlice"


class Drivers:
    """Acts on the slices and on the status of allocated devices. A pool is (driver, name)."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.rng = Random(f"{simulation.plan.seed} drivers")
        self._machines = {}
        self._generations = {}
        self._ever = {}
        """Pools that were published once: in the end they are there."""
        self._rest = False
        registry = self.server.registry
        registry.subscribe_changes(self.server.resource("Node"), self._node_changed)
        registry.subscribe_changes(self.server.resource("ResourceClaim", API_VERSION), self._claim_changed)

    def settle_in(self):
        """What is published before any scheduler starts."""
        for pool in self._pools():
            if self.rng.random() < 0.7:
                self.publish(pool)

    def actions(self):
        """(weight, action) of what happens."""
        return [
            (4, self._publish_some),
            (1, self._lose_some),
            (0.7, self._rebuild),
            (2, self._taint_some),
            (0.7, self._lose_slice),
        ]

    def tidy_up(self):
        """Devices come, taints go, and conditions become true; some of it only later, which wakes others."""
        self._rest = True
        for pool in self._pools():
            chance = self.rng.random()
            if chance < 0.6 or pool in self._generations:
                self.publish(pool)
            elif chance < 0.9 or pool in self._ever:
                call_later(self.rng.uniform(10, 20), self.publish, pool)
            if self.rng.random() < 0.5:
                call_later(self.rng.uniform(20, 35), self._set_taints, pool, [])
        for claim in self.server.objects("ResourceClaim", API_VERSION):
            self._promise(claim)

    # --- pools -------------------------------------------------------------------------------------

    def _pools(self):
        nodes = sorted(node["metadata"]["name"] for node in self.server.objects("Node"))
        return [*((driver, node) for node in nodes for driver in (GPU, TPU)), *((NIC, n) for n in self._networks())]

    def _networks(self):
        return ("everywhere", "zoned", "ports")

    def _machine(self, node):
        if node not in self._machines:
            rng = self.rng
            kind = rng.choice(["plain", "plain", "mixed", "parts", "shared", "none"])
            self._machines[node] = {
                "plain": rng.randint(1, 4) if kind in ("plain", "mixed") else 0,
                "parts": rng.randint(1, 2) if kind in ("parts", "mixed") else 0,
                "shared": rng.randint(1, 2) if kind in ("shared", "mixed") else 0,
                "slow": rng.choice([0, 0, 1, 2]),
                "tpus": rng.choice([0, 0, 1, 2]),
                "models": [rng.choice(["fast", "slow"]) for _ in range(4)],
                "numa": [rng.choice([0, 1]) for _ in range(4)],
                "gib": rng.choice([30, 40]),
            }
        return self._machines[node]

    def _specs(self, pool):
        """The slices of a pool: (where it can be reached, counters, devices)."""
        driver, name = pool
        if driver == NIC:
            return self._network(name)
        machine, here = self._machine(name), {"nodeName": name}
        if driver == TPU:
            return [(here, [], [{"name": f"tpu{i}"} for i in range(machine["tpus"])])] if machine["tpus"] else []
        devices = [
            gpu(f"gpu{i}", "plain", model=machine["models"][i], numa=machine["numa"][i])
            for i in range(machine["plain"])
        ]
        devices += [shared_gpu(f"share{i}", machine["gib"]) for i in range(machine["shared"])]
        devices += [slow_gpu(f"slow{i}") for i in range(machine["slow"])]
        sets = []
        for number in range(machine["parts"]):
            counters, parts = partitions(number)
            sets.append(counters)
            devices += parts
        half = len(devices) // 2 if len(devices) > 2 and self.rng.random() < 0.5 else 0
        found = [(here, sets, [])] if sets else []
        return found + [(here, [], part) for part in (devices[:half], devices[half:]) if part]

    def _network(self, name):
        if name == "everywhere":
            return [({"allNodes": True}, [], [{"name": "nic0"}, {"name": "nic1"}])]
        if name == "zoned":
            return [({"nodeSelector": _in_zone("z1")}, [], [{"name": f"nic{i}"} for i in range(3)])]
        ports = [{"name": "port0", "nodeName": "n0"}, {"name": "port1", "nodeName": "n1"}]
        ports.append({"name": "port2", "nodeSelector": _in_zone("z2")})
        return [({"perDeviceNodeSelection": True}, [], ports)]

    # --- slices ------------------------------------------------------------------------------------

    def publish(self, pool):
        """The pool as it is now, under its next generation; some drivers write one slice after the other."""
        generation = self._generations[pool] = self._ever[pool] = self._ever.get(pool, 0) + 1
        specs, slowly = self._specs(pool), self.rng.random() < 0.3
        delay = 0.0
        for number, spec in enumerate(specs):
            if slowly and number:
                delay += self.rng.uniform(0.1, 4)
            args = (pool, generation, number, len(specs), spec)
            call_later(delay, self._write, *args) if delay else self._write(*args)
        call_later(delay, self._drop_old, pool, generation) if delay else self._drop_old(pool, generation)

    def _write(self, pool, generation, number, count, spec):
        if self._generations.get(pool) != generation:
            return
        (driver, name), (where, counters, devices) = pool, spec
        about = {"name": name, "generation": generation, "resourceSliceCount": count}
        content = {"driver": driver, "pool": about, **where}
        content |= {"sharedCounters": counters} if counters else {"devices": devices}
        slice_name = f"{name}-{driver}-{number}"
        if self.server.get(SLICE, slice_name, api_version=API_VERSION) is None:
            thing = {"apiVersion": API_VERSION, "kind": SLICE, "metadata": {"name": slice_name}, "spec": content}
            self.server.insert(thing)
        else:
            self._change(slice_name, lambda thing: thing.update(spec=content))

    def _drop_old(self, pool, generation):
        if self._generations.get(pool) == generation:
            for thing in self._slices(pool):
                if thing["spec"]["pool"]["generation"] < generation:
                    self._remove(thing)

    def _slices(self, pool=None):
        found = self.server.objects(SLICE, API_VERSION)
        return [each for each in found if pool in (None, (each["spec"]["driver"], each["spec"]["pool"]["name"]))]

    def _change(self, name, make):
        self.server.change(SLICE, name, make, api_version=API_VERSION)

    def _remove(self, thing):
        self.server.remove(SLICE, thing["metadata"]["name"], api_version=API_VERSION)

    def _some_pool(self):
        return self.rng.choice(sorted(self._generations)) if self._generations else None

    def _publish_some(self):
        self.publish(self.rng.choice(self._pools()))

    def _lose_some(self):
        """A driver is removed, and its slices with it."""
        if pool := self._some_pool():
            self._lose(pool)

    def _lose(self, pool):
        self._generations.pop(pool, None)
        for thing in self._slices(pool):
            self._remove(thing)

    def _lose_slice(self):
        """A user deletes a slice: the pool is not complete until it is published again."""
        if found := self._slices():
            self._remove(self.rng.choice(found))

    def _rebuild(self):
        """A machine gets other devices."""
        if self._machines:
            node = self.rng.choice(sorted(self._machines))
            del self._machines[node]
            self.publish((GPU, node))

    def _taint_some(self):
        pool = self._some_pool()
        if pool is not None:
            names = [device["name"] for part in self._slices(pool) for device in part["spec"].get("devices") or ()]
            self._set_taints(pool, [name for name in names if self.rng.random() < 0.4])

    def _set_taints(self, pool, names):
        effect = self.rng.choice(["NoSchedule", "NoSchedule", "NoExecute", "None"])

        def make(thing):
            for device in thing["spec"].get("devices") or ():
                device.pop("taints", None)
                if device["name"] in names:
                    device["taints"] = [{"key": TAINT, "value": "", "effect": effect}]

        for part in self._slices(pool):
            self._change(part["metadata"]["name"], make)

    def _node_changed(self, change):
        name = change.record.name
        if change.type == "DELETED":
            for driver in (GPU, TPU):
                call_later(self.rng.uniform(0, 3), self._lose, (driver, name))
        elif change.type == "ADDED":
            for driver in (GPU, TPU):
                if self._rest or self.rng.random() < 0.7:
                    call_later(self.rng.uniform(3, 8), self._publish_of_node, driver, name)

    def _publish_of_node(self, driver, name):
        if self.server.get("Node", name) is not None:
            self.publish((driver, name))

    # --- allocated devices ---------------------------------------------------------------------------

    def _claim_changed(self, change):
        if change.type != "DELETED" and allocation_of(change.new) and not allocation_of(change.old or {}):
            self._promise(change.new)

    def _promise(self, claim):
        """The driver makes the devices ready, by and by; or it fails, or does nothing at all."""
        waiting = [each for each in results_of(claim) if each.get("bindingConditions")]
        if not waiting:
            return
        plan = self.rng.choice(["ready"] * 4 + ["fail", "never"]) if not self._rest else "ready"
        if plan != "never":
            condition = READY if plan == "ready" else FAILED
            meta = claim["metadata"]
            delay = self.rng.uniform(0, 2) if self._rest else self.rng.uniform(0, 8)
            call_later(delay, self._report, meta["namespace"], meta["name"], meta["uid"], waiting, condition)

    def _report(self, namespace, name, uid, devices, kind):
        def make(claim):
            if claim["metadata"]["uid"] != uid or results_of(claim)[: len(devices)] != devices:
                return
            stated = {"type": kind, "status": "True", "reason": "Told", "message": "told to"}
            condition = {**stated, "lastTransitionTime": "2030-01-01T00:00:00Z"}
            claim["status"]["devices"] = [
                {key: each[key] for key in ("driver", "pool", "device")} | {"conditions": [condition]}
                for each in devices
            ]

        self.server.change("ResourceClaim", name, make, namespace, API_VERSION)

    # --- other clients -------------------------------------------------------------------------------

    def allocate(self, claim):
        """Another client gives the claim, which asks for one plain GPU, one that is free by now."""
        taken = {
            (each["driver"], each["pool"], each["device"])
            for other in self.server.objects("ResourceClaim", API_VERSION)
            for each in results_of(other)
        }
        newest = {}
        for part in self._slices():
            about = part["spec"]["pool"]
            key = part["spec"]["driver"], about["name"]
            newest[key] = max(newest.get(key, 0), about["generation"])
        free = [
            (part["spec"]["driver"], part["spec"]["pool"]["name"], device["name"])
            for part in self._slices()
            for device in part["spec"].get("devices") or ()
            if device.get("attributes", {}).get("kind") == {"string": "plain"}
            and newest[part["spec"]["driver"], part["spec"]["pool"]["name"]] == part["spec"]["pool"]["generation"]
        ]
        free = [each for each in free if each not in taken]
        if not free:
            return
        driver, pool, device = self.rng.choice(free)

        def make(thing):
            thing["metadata"]["finalizers"] = [FINALIZER]
            result = {"request": "r", "driver": driver, "pool": pool, "device": device}
            here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pool]}]}]
            allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": here}}
            thing["status"] = {**(thing.get("status") or {}), "allocation": allocation}

        meta = claim["metadata"]
        self.server.change("ResourceClaim", meta["name"], make, meta["namespace"], API_VERSION)


def _in_zone(zone):
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
