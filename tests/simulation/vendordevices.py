"""NPUs and other GPUs: those of which only certain parts can be given, and those whose vendors' device plugins read
annotations of their own, some of which serve one pod at a time.
"""

import contextlib
import json
from random import Random

from tests.plugins.deviceshare.machines import GIB
from tests.plugins.deviceshare.naive.adapters import LOCKS
from tests.plugins.deviceshare.naive.books import templates_of
from tests.plugins.deviceshare.naive.request import CORE, MEMORY, NPU_CORE, NPU_CPU, NPU_DVPP, RATIO, SHARED
from tests.simulation.agentusers import annotate
from tests.simulation.apiserver import call_later
from tests.simulation.configuration import ADAPTION, gates
from tests.simulation.history import History

NAMESPACE, NAME = "koordinator-system", "gpu-shared-resource-templates"

NPU = {NPU_CORE: "8", NPU_CPU: "7", NPU_DVPP: "100", MEMORY: str(24 * GIB), RATIO: "100"}
MACHINES = (
    {"vendor": "huawei", "model": "Ascend-310P", "gpus": 2, "nics": 0, "resources": NPU},
    {"vendor": "huawei", "model": "Ascend-310P", "gpus": 4, "nics": 1, "per_switch": 2, "resources": NPU},
    {"vendor": "huawei", "model": "Ascend-310P3-300I-DUO", "gpus": 2, "nics": 0},
    {"vendor": "cambricon", "model": "MLU370", "gpus": 2, "nics": 0},
    {"vendor": "metax", "model": "C500", "gpus": 4, "nics": 1, "per_switch": 2},
)

PARTS = {
    "vir01": {MEMORY: "3Gi", NPU_CORE: "1", NPU_CPU: "1", NPU_DVPP: "12"},
    "vir02": {MEMORY: "6Gi", NPU_CORE: "2", NPU_CPU: "2", NPU_DVPP: "25"},
    "vir04": {MEMORY: "12Gi", NPU_CORE: "4", NPU_CPU: "4", NPU_DVPP: "50"},
}


def _text(*names):
    return json.dumps({"huawei-Ascend-310P": {name: PARTS[name] for name in names}})


TEMPLATES = (_text(*PARTS), _text("vir01", "vir02"), _text("vir04"), "{}")


class VendorDevices:
    """Acts on the objects: the ConfigMap of templates, nodes that are locked, machines and pods of the others."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.rng = Random(f"{simulation.plan.seed} vendors")
        self.adapts = ADAPTION in gates(simulation.plan)
        self._history = History().follow(self.server, self.server.resource("ConfigMap"))
        self.server.registry.subscribe_changes(self.server.resource("Node"), self._node_changed)

    def machine(self):
        """Another machine, None for one like those of all worlds."""
        return self.rng.choice(MACHINES) if self.rng.random() < 0.4 else None

    def amounts(self):
        """What a pod asks for, None for one like those of all worlds."""
        if self.rng.random() < 0.6:
            return None
        part = self.rng.choice([*PARTS.values(), {**PARTS["vir01"], NPU_CPU: "3"}])
        share = {CORE: self.rng.choice(["10", "50"]), MEMORY: str(self.rng.choice([1, 2]) * GIB)}
        return self.rng.choice([{SHARED: "1", **part}, {SHARED: "1", **part}, share, {NPU_CORE: "8", RATIO: "100"}])

    # --- templates -----------------------------------------------------------------------------------

    def change_templates(self):
        """The administrator writes others, some of them wrongly, or deletes them."""
        if self.rng.random() < 0.15:
            if self.server.get("ConfigMap", NAME, NAMESPACE) is not None:
                self.server.remove("ConfigMap", NAME, NAMESPACE)
            return
        self.write_templates(self.rng.choice([*TEMPLATES, "{"]))

    def write_templates(self, text=None):
        """The ConfigMap has this text; None: what most pods ask for."""
        data = {"data.yaml": text or TEMPLATES[0]}
        if self.server.get("ConfigMap", NAME, NAMESPACE) is None:
            meta = {"name": NAME, "namespace": NAMESPACE}
            self.server.insert({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
            return
        self.server.change("ConfigMap", NAME, lambda thing: thing.update(data=data), NAMESPACE)

    def config_maps(self):
        """The ConfigMap, if it is there."""
        thing = self.server.get("ConfigMap", NAME, NAMESPACE)
        return [thing] if thing is not None else []

    def ever(self):
        """All templates that there have been, and none: {vendor-model: {name: amounts}} each."""
        found = [{}]
        for thing in self._history.states_since((NAMESPACE, NAME), 0):
            with contextlib.suppress(ValueError):
                templates = templates_of(thing or {})
                if templates not in found:
                    found.append(templates)
        return found

    # --- device plugins --------------------------------------------------------------------------------

    def _node_changed(self, change):
        """The device plugin of a node serves the pod that the lock is for, and removes the lock."""
        annotations = (change.new or {}).get("metadata", {}).get("annotations") or {}
        for key in LOCKS.values():
            if key in annotations and self.server.writer:
                call_later(
                    self.rng.uniform(0.2, 4), self._unlock, change.new["metadata"]["name"], key, annotations[key]
                )

    def _unlock(self, name, key, text):
        node = self.server.get("Node", name)
        if node is not None and (node["metadata"].get("annotations") or {}).get(key) == text:
            self.server.change("Node", name, lambda thing: annotate(thing, key, None))
