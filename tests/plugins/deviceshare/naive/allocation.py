"""Which devices of a node a pod gets: deviceshare spec 3.3 and 3.4.

An allocation is {device type: [{minor, resources, vfs: [entry], template}]}.
"""

from itertools import combinations

from tests.plugins.deviceshare.naive.amounts import fits, is_zero, less, without
from tests.plugins.deviceshare.naive.books import MODEL, VENDOR, node_table
from tests.plugins.deviceshare.naive.partitions import by_partition
from tests.plugins.deviceshare.naive.request import MEMORY, NO_TEMPLATE, RATIO, UAU, Refused, U, counted, selected
from tests.plugins.deviceshare.naive.scopes import by_scope


class View:
    """What one pod may have of a node: {device type: {minor: amounts}}."""

    def __init__(self):
        self.total, self.used, self.free = {}, {}, {}


class Allocator:
    """One pod on one node.

    `mask`: the NUMA nodes whose devices may be taken, None for all. `scorer`: None where all devices are equally good.
    `reserving`: whether devices that are looked at late are looked at, too. `improved`: as the argument
    improvedAllocation has it (docs/devices.md).
    """

    def __init__(self, asked, books, labels, mask=None, scorer=None, reserving=False, improved=False):
        self.asked, self.books, self.labels = asked, books, labels
        self.mask, self.scorer, self.improved = mask, scorer, improved
        self.each, self.count = {}, {}
        late = asked.primary and asked.gpus and not asked.gpus.shared and books.well_planned and not reserving
        for kind in asked.requests:
            if not (late and kind != asked.primary):
                self.each[kind], self.count[kind] = counted(kind, asked, books)
        for kind in self.each:
            infos = books.infos.get(kind, ())
            if asked.hint(kind).get("vfSelector") is not None and not any(entry.get("vfGroups") for entry in infos):
                raise Refused(UAU, f"Insufficient {kind} VirtualFunctions")

    def allocate(self, returned=None, required=None):
        """The allocation. Raises Refused.

        `returned`: {type: {minor: amounts}} that pods which are taken away give back. `required`: {type: {minor:
        amounts}}, the most that may be taken, of types that are there.
        """
        view = self.view(returned or {}, required or {})
        found = {}
        if len(self.each) > 1 and self.asked.joint:
            found = self.jointly_somewhere(view) if self.improved else self.jointly(view)
        for kind in self.each:
            if kind not in found:
                taken = self.take(view, kind, self.count[kind])
                if taken:
                    found[kind] = taken
        if not found:
            raise Refused(U, *(f"Insufficient {kind} devices" for kind in self.each))
        return found

    def view(self, returned, required):
        view = View()
        for kind in self.each:
            minors = {entry["minor"] for entry in self.books.infos.get(kind, ()) if self.is_candidate(kind, entry)}
            free = self.left(kind, returned.get(kind, {}), required.get(kind))
            if not minors or all(is_zero(amounts) for amounts in free.values()):
                continue
            view.total[kind], view.used[kind], view.free[kind] = {}, {}, {}
            for minor in sorted(minors & set(free)):
                total = self.books.total[kind].get(minor, {})
                used = less(total, free[minor])
                view.total[kind][minor] = total
                view.free[kind][minor] = total if is_zero(used) else less(total, used)
                if not is_zero(used):
                    view.used[kind][minor] = used
        return view

    def is_candidate(self, kind, entry):
        if self.mask is not None:
            topology = entry.get("topology")
            if not topology or (topology["nodeID"] != -1 and topology["nodeID"] not in self.mask):
                return False
        hint = self.asked.hint(kind)
        if self.improved and hint.get("exclusivePolicy") == "PCIeLevel":
            pcie = (entry.get("topology") or {}).get("pcieID")
            if pcie is None or pcie in {self.books.pcie(kind, minor) for minor in self.books.used.get(kind, ())}:
                return False
        selector = hint.get("selector")
        return selector is None or selected(selector, entry)

    def left(self, kind, returned, required):
        """{minor: what is left} after pods were taken away."""
        free, back = self.books.free(kind), {}
        for minor, amounts in returned.items():
            used = without(self.books.used.get(kind, {}).get(minor, {}), amounts)
            rest = less(self.books.total.get(kind, {}).get(minor, {}), used)
            if not is_zero(rest):
                back[minor] = rest
        free |= back
        if self.improved and kind == "gpu":
            total = self.books.total.get(kind, {})
            free = {minor: consistent(amounts, total.get(minor, {})) for minor, amounts in free.items()}
        if not required:
            return free
        return {
            minor: {name: min(free[minor][name], most) for name, most in required[minor].items() if name in free[minor]}
            for minor in free
            if minor in required
        }

    def jointly(self, view):
        primary, *others = self.asked.joint
        found = {primary: self.take(view, primary, self.count[primary])}
        if not found[primary]:
            raise Refused(U, "node(s) Insufficient primary device")
        wanted = self.pcies(primary, found[primary])
        for kind in others:
            count = max(self.count[kind], len(wanted)) if self.asked.same_pcie else self.count[kind]
            taken = self.take(view, kind, count, wanted)
            if taken:
                found[kind] = taken
        if self.asked.same_pcie and any(self.pcies(kind, found.get(kind, ())) != wanted for kind in others):
            raise Refused(U, "node(s) Device Joint-Allocate rules violation")
        return found

    def jointly_somewhere(self, view):
        """The same, with other devices left out in turn if the first choice does not do."""
        try:
            return self.jointly(view)
        except Refused as refused:
            if not self.asked.same_pcie:
                raise
            for narrow in self.narrowed(view):
                try:
                    return self.jointly(narrow)
                except Refused:
                    continue
            raise refused from None

    def narrowed(self, view):
        """All sets of so many devices of the primary type, and of GPUs; and all sets of the others."""
        choices = [View()]
        for kind in self.asked.joint:
            there = sorted(view.free.get(kind, ()))
            count = max(1, self.count[kind])
            exact = kind in ("gpu", self.asked.primary)
            sets = [
                chosen
                for size in ([count] if exact else range(1, len(there) + 1))
                for chosen in combinations(there, size)
            ]
            choices = [self.restricted(view, choice, kind, chosen) for choice in choices for chosen in sets]
        return choices

    @staticmethod
    def restricted(view, chosen_before, kind, chosen):
        """The view with no other devices of a type."""
        narrow = View()
        for name in ("total", "used", "free"):
            amounts = {**getattr(view, name), **getattr(chosen_before, name)}
            if kind in amounts:
                amounts[kind] = {minor: each for minor, each in amounts[kind].items() if minor in chosen}
            setattr(narrow, name, amounts)
        return narrow

    def pcies(self, kind, taken):
        return {self.books.pcie(kind, each["minor"]) for each in taken} - {None}

    def take(self, view, kind, count, pcies=frozenset()):
        """Devices of one type: at least `count`, one per PCIe of `pcies` if there are more of these."""
        most = max(count, len(pcies), 1)
        count = max(count, 1)
        if kind == "gpu":
            return self.take_gpus(view, count, most)
        return self.take_any(view, kind, count, most, pcies)

    def take_any(self, view, kind, count, most, pcies=frozenset()):
        wanted, taken = self.each[kind], []
        selector = self.asked.hint(kind).get("vfSelector")
        for minor in self.ordered(view, kind, pcies):
            free = view.free[kind][minor]
            if is_zero(free) or not fits(wanted, free):
                continue
            vfs = []
            if selector is not None:
                vfs = self.free_vfs(kind, minor, selector)[:1]
                if not vfs:
                    continue
            taken.append({"minor": minor, "resources": wanted, "vfs": vfs, "template": None})
            if len(taken) == most:
                break
        if len(taken) < count:
            raise Refused(U, f"Insufficient {kind} devices")
        return taken

    def free_vfs(self, kind, minor, selector):
        """Virtual functions of a device that no pod holds, by bus id."""
        designated = None
        for entry in (self.asked.designated or {}).get(kind, ()):
            if entry["minor"] == minor and entry["vfs"]:
                designated = set(entry["vfs"])
        held = self.books.vfs.get(kind, {}).get(minor, set())
        return sorted(
            (
                vf
                for group in (self.books.entry(kind, minor) or {}).get("vfGroups") or ()
                if selected(selector, group)
                for vf in group.get("vfs") or ()
                if vf["busID"] not in held and (designated is None or vf["busID"] in designated)
            ),
            key=lambda vf: vf["busID"],
        )

    def ordered(self, view, kind, pcies):
        """Minors in the order in which they are tried: preferred PCIes take turns, then the others."""
        free = view.free.get(kind, {})

        def rank(minor):
            points = self.scorer.rated(self.each[kind], view.total[kind][minor], free[minor]) if self.scorer else 0
            return -points, minor

        groups, others = {}, []
        for minor in sorted(free, key=rank):
            pcie = self.books.pcie(kind, minor)
            if pcie in pcies:
                groups.setdefault(pcie, []).append(minor)
            else:
                others.append(minor)
        ordered = []
        for turn in range(max(map(len, groups.values()), default=0)):
            ordered += sorted((group[turn] for group in groups.values() if turn < len(group)), key=rank)
        return ordered + others

    # GPUs

    def take_gpus(self, view, count, most):
        gpus = self.asked.gpus
        if gpus.templates is not None:
            names = gpus.templates.get(f"{self.labels.get(VENDOR, '')}-{self.labels.get(MODEL, '')}", ())
            if not names:
                raise Refused(UAU, NO_TEMPLATE)
            if len(names) == 1:
                taken = self.take_freely(view, count, most)
                return [{**each, "template": names[0]} for each in taken]
        table, honour = self.books.table, self.books.honour
        if table is None:
            table, honour = node_table(self.labels)
        honour = honour or gpus.honour
        if not gpus.shared:
            try:
                minors = by_partition(gpus, table, self.healthy(view), self.in_use(view))
            except Refused:
                if honour:
                    raise
                minors = []
            if minors:
                return [{"minor": minor, "resources": gpus.each, "vfs": [], "template": None} for minor in minors]
        return self.take_freely(view, count, most)

    def take_freely(self, view, count, most):
        gpus = self.asked.gpus
        try:
            minors = by_scope(
                gpus, self.books.tree, self.fitting(view), self.in_use(view), lambda minor: self.swapped(view, minor)
            )
        except Refused as refused:
            if gpus.scope or refused.verdict.code != UAU:
                raise
            return self.take_any(view, "gpu", count, most)
        return [{"minor": minor, "resources": gpus.each, "vfs": [], "template": None} for minor in minors]

    def healthy(self, view):
        return {minor for minor, total in view.total.get("gpu", {}).items() if not is_zero(total)}

    def fitting(self, view):
        free = view.free.get("gpu", {})
        return {minor for minor in self.healthy(view) if fits(self.asked.gpus.each, free[minor])}

    def in_use(self, view):
        """Minors of which anything is in use, and those in use that are no candidates."""
        outside = set(self.books.used.get("gpu", {})) - set(view.total.get("gpu", {}))
        return outside | set(view.used.get("gpu", {}))

    def swapped(self, view, minor):
        """The score of a GPU with what is left for its size, as upstream has it in the scope tree."""
        if self.scorer is None:
            return 0
        left = view.free["gpu"][minor]
        return self.scorer.rated(self.asked.gpus.each, left, self.books.total["gpu"][minor])


def consistent(free, total):
    """What is left of a GPU: no more memory than its share says, and the other way round."""
    size = total.get(MEMORY, 0)
    if not size or not {MEMORY, RATIO} <= set(free):
        return free
    ratio, memory = free[RATIO], free[MEMORY]
    return {**free, RATIO: min(ratio, memory * 100 // size), MEMORY: min(memory, ratio * size // 100)}


def complete(allocation, books, node):
    """Fills in memory and ratio of GPUs. Raises Refused."""
    for each in allocation.get("gpu", ()) if "gpu" in books.total else ():
        total = books.total["gpu"].get(each["minor"], {})
        if is_zero(total):
            text = f"no healthy gpu device with minor {each['minor']} of allocation, node: {node}"
            raise Refused("Error", f"fillGPUTotalMem failed: {text}")
        amounts = dict(each["resources"])
        size = total.get(MEMORY, 0)
        if MEMORY not in amounts:
            amounts[MEMORY] = amounts.get(RATIO, 0) * size // 100
        elif RATIO not in amounts:
            amounts[RATIO] = int(amounts[MEMORY] / size * 100)
        each["resources"] = amounts
