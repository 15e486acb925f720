"""The plugin: its verdicts, scores and allocations for one pod on one node at a time."""

import copy
import json

from tests.plugins.deviceshare.naive.adapters import adapted
from tests.plugins.deviceshare.naive.allocation import Allocator, complete
from tests.plugins.deviceshare.naive.amounts import added
from tests.plugins.deviceshare.naive.books import MODEL, VENDOR, key_of
from tests.plugins.deviceshare.naive.request import ALLOCATED, ERROR, NPU_CORE, UAU, Refused, U, asked_of
from tests.plugins.deviceshare.naive.scoring import Scorer
from tests.plugins.nodenumaresource.naive import SKIP, Verdict

ISOLATION = "koordinator.sh/gpu-isolation-provider"


class Naive:
    """DeviceShare with its arguments on a World."""

    def __init__(self, world, args=None, gates=()):
        args = args or {}
        self.world = world
        self.scorer = Scorer(args.get("scoringStrategy"))
        self.improved = bool(args.get("improvedAllocation"))
        self.unaligned = bool(args.get("disableDeviceNUMATopologyAlignment"))
        templates = args.get("gpuSharedResourceTemplatesConfig")
        self.matched = [NPU_CORE] if templates is None else templates.get("matchedResources") or []
        self.unsupported = {(each.get("vendor", ""), each.get("model", ""))
                            for each in args.get("gpuShareUnsupportedModels") or ()}  # fmt: skip
        self.adapts = "DevicePluginAdaption" in gates

    def pre_filter(self, pod):
        """(Verdict, Asked); Asked is None where the pod is refused."""
        try:
            asked = asked_of(pod, self.world.templates, self.matched)
        except Refused as refused:
            return refused.verdict, None
        return Verdict(SKIP) if asked.skip else Verdict(), asked

    def filter(self, asked, name, returned=(), aligned=False):
        """The Verdict on a node. `returned`: pods on it that preemption would take away.

        `aligned`: whether the topology manager has settled which NUMA nodes the pod may use.
        """
        try:
            self._filter(asked, name, returned, aligned)
        except Refused as refused:
            return refused.verdict
        return Verdict()

    def _filter(self, asked, name, returned, aligned):
        if asked.skip:
            return
        labels = self.labels(name)
        if asked.gpus and asked.gpus.shared:
            provider = (asked.pod["metadata"].get("labels") or {}).get(ISOLATION)
            if provider and provider != labels.get(ISOLATION):
                raise Refused(U if self.improved else ERROR, "GPUIsolationProviderHAMICore not found on the node")
            vendor, model = labels.get(VENDOR, ""), labels.get(MODEL, "")
            if (vendor, model) in self.unsupported:
                raise Refused(UAU, f'model "{model}" of vendor "{vendor}" does not support GPU Share')
        if not aligned:
            self.try_allocation(asked, name, None, returned)

    def try_allocation(self, asked, name, mask, returned=()):
        """Whether the pod gets devices of these NUMA nodes (None: of all). Raises Refused."""
        if asked.designated is not None:
            self.allocate(asked, name, None, returned)
        elif name in self.world.books:
            self.allocator(asked, name, mask).allocate(self.given_back(name, returned))

    def labels(self, name):
        return self.world.nodes[name]["metadata"].get("labels") or {}

    def allocator(self, asked, name, mask=None, **more):
        return Allocator(asked, self.world.books[name], self.labels(name), mask, improved=self.improved, **more)

    def given_back(self, name, pods):
        """{device type: {minor: amounts}} that the pods on a node hold."""
        total = {}
        for pod in pods:
            for kind, devices in self.world.books[name].held(key_of(pod)).items():
                for minor, amounts in devices.items():
                    of_kind = total.setdefault(kind, {})
                    of_kind[minor] = added(of_kind.get(minor, {}), amounts)
        return total

    def allocate(self, asked, name, mask=None, returned=(), reserving=False):
        """The completed allocation, None on a node of which no devices are known. Raises Refused."""
        books = self.world.books.get(name)
        if books is None:
            return None
        mask = None if self.unaligned else mask
        designated = copy.deepcopy(asked.designated or {})
        complete(designated, books, name)
        required = {kind: {each["minor"]: each["resources"] for each in listed} for kind, listed in designated.items()}
        allocator = self.allocator(asked, name, mask, scorer=self.scorer, reserving=reserving)
        found = allocator.allocate(self.given_back(name, returned), required)
        complete(found, books, name)
        return found

    def reserve(self, asked, name, mask=None):
        """(Verdict, allocation): what the pod gets on the node that was chosen; None: nothing is written."""
        if asked.skip:
            return Verdict(), None
        try:
            return Verdict(), self.allocate(asked, name, mask, reserving=True)
        except Refused as refused:
            return refused.verdict, None

    def score(self, asked, name, mask=None):
        """The score of a node that passed the filter. Raises Refused where upstream fails, and the attempt with it."""
        if asked.skip or name not in self.world.books:
            return 0
        allocator = self.allocator(asked, name, mask)
        view = allocator.view({}, {})
        return sum(
            self.scorer.rated_together(allocator.each[kind], view.total[kind], view.free[kind]) for kind in view.total
        )

    def written(self, asked, name, allocation, adapt=True):
        """The changes that PreBind writes: {"annotations", "labels"}, for device plugins if `adapt`. Raises Refused."""
        if allocation is None:
            return {"annotations": {}, "labels": {}}
        device = self.world.devices.get(name)
        if device is None:
            raise Refused(ERROR, f'device.scheduling.koordinator.sh "{name}" not found')
        books, listed = self.world.books[name], {}
        for kind, taken in sorted(allocation.items()):
            listed[kind] = [in_words(each, books.entry(kind, each["minor"]) or {}) for each in taken]
        written = {"annotations": {ALLOCATED: json.dumps(listed, separators=(",", ":"))}, "labels": {}}
        if adapt and self.adapts:
            adapted(written, asked.pod, self.world.nodes[name], device, listed.get("gpu"), self.world.pods)
        return written


def in_words(taken, entry):
    """One device as the annotation has it."""
    words = {"minor": taken["minor"], "resources": {name: str(n) for name, n in sorted(taken["resources"].items())}}
    if entry.get("id"):
        words["id"] = entry["id"]
    extension = {}
    if taken["vfs"]:
        extension["vfs"] = [{key: vf[key] for key in ("minor", "busID") if vf.get(key)} for vf in taken["vfs"]]
    if taken["template"]:
        extension["gpuSharedResourceTemplate"] = taken["template"]
    if extension:
        words["extension"] = extension
    return words
