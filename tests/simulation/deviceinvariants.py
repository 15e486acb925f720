"""GPUs, NICs and FPGAs: what must hold whenever a pod is bound, judged from the server's own objects."""

import json

from tests.plugins.deviceshare.naive.adapters import NOW, adapted
from tests.plugins.deviceshare.naive.amounts import fits, read
from tests.plugins.deviceshare.naive.books import MODEL, VENDOR, Books, held_by, key_of, node_table
from tests.plugins.deviceshare.naive.model import ISOLATION
from tests.plugins.deviceshare.naive.request import (
    ALLOCATED,
    CORE,
    FPGA,
    MEMORY,
    NPU_CORE,
    RATIO,
    RDMA,
    Refused,
    asked_of,
    counted,
    selected,
)
from tests.simulation.allocationinvariants import AllocationInvariants
from tests.simulation.reservationusers import is_operating

REPORTS = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
PERCENT = (CORE, RDMA, FPGA)
"""Of which every device that is simulated has 100."""


class DeviceInvariants(AllocationInvariants):
    """See AllocationInvariants."""

    REPORTS = REPORTS

    def _problems(self, pod, decision, reports):
        given, vendors = entries_of(pod), self._users.vendors
        others = [other for other in self._invariants.known_others(pod, decision) if self._holds(other, decision)]
        if not self._ids_are_right(given, reports):
            yield "the ids are others"
            return
        if vendors is not None and vendors.adapts and given:
            text = not_adapted(pod, decision.node, given, reports)
            if text is not None:
                yield text
                return
        improved = bool(self._users.args.get("improvedAllocation"))
        for templates in vendors.ever() if vendors is not None else ({},):
            for state in self._pod_states(pod, decision):
                for node in self._invariants.node_states(decision):
                    for report in reports:
                        yield wrong(state, given, node, report, others, templates, improved=improved)

    def _kept(self, node):
        """What Reservations keep of devices beside what their owners use of it."""
        for thing, owners in self._sharing(node):
            left = _percents(thing)
            for owner in owners:
                for what, amount in _percents(owner).items():
                    if what in left:
                        left[what] = max(0, left[what] - amount)
            yield left

    def _holds(self, other, decision):
        """Whether another pod is on the node, and what it says was so when it came there."""
        return other["spec"].get("nodeName") == decision.node and self._is_reliable(other)

    def _is_reliable(self, pod):
        uid = pod["metadata"]["uid"]
        if uid in self._users.moved or (self._invariants.reserved is not None and is_operating(pod)):
            return False
        known = self._invariants.bound.get(uid)
        if known is None or known.decision is not None:
            return True
        # A replica that tries a pod may annotate it after another client has bound it.
        return not any(tried == uid for _, tried in self._invariants.decisions)

    @staticmethod
    def _ids_are_right(given, reports):
        """Each by some state of the Device; of a device that it does not have there is none."""
        known = [
            {(entry["type"], entry["minor"]): entry.get("id", "") for entry in report["spec"]["devices"]}
            for report in reports
            if report is not None
        ]
        return all(
            any(ids.get((kind, entry["minor"]), "") == entry.get("id", "") for ids in known)
            for kind, entries in (given or {}).items()
            for entry in entries
        )

    def _check_shared(self, node):
        """What is there once is given once: no device is given out to more than 100 per cent, no virtual function
        twice."""
        amounts, functions = {}, {}
        for pod in self._decided_on(node):
            for kind, entries in held_by(pod).items():
                for entry in entries:
                    for name in PERCENT:
                        what = kind, entry["minor"], name
                        amounts[what] = amounts.get(what, 0) + entry["resources"].get(name, 0)
                    for function in entry["vfs"]:
                        functions.setdefault((kind, entry["minor"], function), []).append(pod["metadata"]["name"])
        for kept in self._kept(node):
            for what, amount in kept.items():
                amounts[what] = amounts.get(what, 0) + amount
        over = {what: amount for what, amount in amounts.items() if amount > 100}
        twice = {what: names for what, names in functions.items() if len(names) > 1}
        if over or twice:
            self._invariants.fail(f"devices of {node} are given twice: {over} {twice}")


def _percents(thing):
    """(device type, minor, resource) -> what a pod or Reservation says it was given."""
    found = {}
    for kind, entries in held_by(thing).items():
        for entry in entries:
            for name in PERCENT:
                if entry["resources"].get(name):
                    found[kind, entry["minor"], name] = entry["resources"][name]
    return found


def entries_of(pod):
    """{device type: [entry]} as the annotation says; None without it."""
    return json.loads((pod["metadata"].get("annotations") or {}).get(ALLOCATED, "null"))


def wrong(pod, given, node, report, others, templates, *, improved=False):
    """Why a pod cannot have been given this on a node, and a Device, in these states; None if it can.

    `improved`: with the argument improvedAllocation.
    """
    try:
        asked = asked_of(pod, templates, [NPU_CORE])
    except Refused as refused:
        return f"it cannot be placed at all: {refused.verdict.reasons}"
    if asked.skip or report is None:
        return "it is given what no replica can have known" if given else None
    books = Books()
    books.put_device(report)
    for other in others:
        books.add(key_of(other), held_by(other))
    if set(given or {}) != set(asked.requests):
        return f"it wants {sorted(asked.requests)}"
    try:
        return (
            _wrong_types(asked, given, books)
            or _wrong_template(asked, given, node)
            or _wrong_gpus(asked, given, books, node)
            or _apart(asked, given, books)
            or (improved and _not_improved(asked, given, books, node))
            or None
        )
    except Refused as refused:
        return f"it wants what there is not: {refused.verdict.reasons}"


def _wrong_types(asked, given, books):
    for kind, entries in given.items():
        each, number = counted(kind, asked, books)
        if len(entries) < number or len({entry["minor"] for entry in entries}) < len(entries):
            return f"it wants {number} {kind}"
        for entry in entries:
            problem = _wrong_device(asked, kind, each, entry, books)
            if problem is not None:
                return f"{kind} {entry['minor']} {problem}"
    return None


def _wrong_template(asked, given, node):
    """A part of a GPU that only certain parts can be given of is one of these, and says which."""
    if asked.gpus is None:
        return None
    labels = node["metadata"].get("labels") or {}
    names = (asked.gpus.templates or {}).get(f"{labels.get(VENDOR, '')}-{labels.get(MODEL, '')}", [])
    if asked.gpus.templates is not None and not names:
        return "it wants a part that GPUs of this model are not divided into"
    said = {(entry.get("extension") or {}).get("gpuSharedResourceTemplate") for entry in given["gpu"]}
    return None if said == {names[0] if len(names) == 1 else None} else f"its template is {said}, not {names}"


def _wrong_device(asked, kind, each, entry, books):
    known, amounts = books.entry(kind, entry["minor"]), read(entry["resources"])
    if known is None or not known["health"]:
        return "is not there, or not healthy"
    if any(amounts.get(name) != amount for name, amount in each.items()):
        return f"is to have {each}"
    if kind == "gpu" and not {MEMORY, RATIO} <= set(amounts):
        return "has no memory, or no share of it"
    free = books.free(kind)[entry["minor"]]
    if not fits(each, free):
        return f"has only {free} left"
    hint = asked.hint(kind)
    if hint.get("selector") is not None and not selected(hint["selector"], known):
        return "is not among those selected"
    held = [function["busID"] for function in (entry.get("extension") or {}).get("vfs") or ()]
    if len(held) != (hint.get("vfSelector") is not None):
        return f"comes with virtual functions {held}"
    there = {
        function["busID"]
        for group in known.get("vfGroups") or ()
        if held and selected(hint["vfSelector"], group)
        for function in group["vfs"]
    }
    taken = books.vfs.get(kind, {}).get(entry["minor"], set())
    return None if set(held) <= there - taken else f"has no such virtual function left: {held}"


def _wrong_gpus(asked, given, books, node):
    gpus = asked.gpus
    if gpus is None:
        return None
    minors = {entry["minor"] for entry in given["gpu"]}
    table, honour = books.table, books.honour
    if table is None:
        table, honour = node_table(node["metadata"].get("labels") or {})
    if not gpus.shared and (honour or gpus.honour):
        partitions = [group["minors"] for groups in (table or {}).get(gpus.count, ()) for group in groups]
        if minors not in map(set, partitions) or minors & set(books.used.get("gpu", ())):
            return f"GPUs {sorted(minors)} are no free partition"
    places = [books.entry("gpu", minor).get("topology") for minor in minors]
    near = {"PCIe": lambda place: (place["nodeID"], place["pcieID"]), "NUMANode": lambda place: place["nodeID"]}
    if gpus.scope not in near or _is_partition(gpus, table, minors):
        return None
    if all(places) and len({near[gpus.scope](place) for place in places}) == 1:
        return None
    return f"GPUs {sorted(minors)} are not on one {gpus.scope}"


def _is_partition(gpus, table, minors):
    """Where there is a table, whole GPUs of a partition are taken without a look at scopes."""
    if gpus.shared:
        return False
    return minors in [set(group["minors"]) for groups in (table or {}).get(gpus.count, ()) for group in groups]


def _apart(asked, given, books):
    if not asked.same_pcie or len(asked.joint) < 2:
        return None
    switches = [{books.pcie(kind, entry["minor"]) for entry in given[kind]} - {None} for kind in asked.joint]
    return None if all(each == switches[0] for each in switches) else f"its devices are on {switches}"


def _not_improved(asked, given, books, node):
    """What upstream would let pass."""
    provider = (asked.pod["metadata"].get("labels") or {}).get(ISOLATION)
    if (
        provider
        and asked.gpus
        and asked.gpus.shared
        and provider != (node["metadata"].get("labels") or {}).get(ISOLATION)
    ):
        return f"it is not isolated by {provider} there"
    for kind, entries in given.items():
        busy = {books.pcie(kind, minor) for minor in books.used.get(kind, ())}
        for entry in entries:
            if not fits(read(entry["resources"]), books.free(kind)[entry["minor"]]):
                return f"{kind} {entry['minor']} has less left than it is given, memory and share taken together"
            if asked.hint(kind).get("exclusivePolicy") != "PCIeLevel":
                continue
            switch = books.pcie(kind, entry["minor"])
            if switch is None or switch in busy:
                return f"{kind} {entry['minor']} is on a PCIe switch that others use"
    return None


def not_adapted(pod, node, given, reports):
    """Why a pod does not say what the vendor's device plugin reads; None if it does, by one of the Devices."""
    found, labels = (pod["metadata"].get(key) or {} for key in ("annotations", "labels"))
    gpus = [{**entry, "resources": read(entry["resources"])} for entry in given.get("gpu", ())]
    for report in reports:
        written = {"annotations": {}, "labels": {}}
        if report is None:
            continue
        try:
            adapted(written, pod, {"metadata": {"name": node}}, report, gpus, ())
        except Refused:
            continue
        is_there = all(key in found and text in (NOW, found[key]) for key, text in written["annotations"].items())
        if is_there and written["labels"].items() <= labels.items():
            return None
    return f"its device plugin reads other annotations: {found}"
