"""The plugin with GPUs, compared with the model: where pods fit, what they use, which GPUs they are given."""

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.devices import held, may_have, wanted
from tests.plugins.reservation.naive.plugin import usable
from tests.plugins.reservation.randomstates import PROFILE
from tests.plugins.reservation.realplugin import Comparison


class DeviceComparison(Comparison):
    """The model takes over which GPUs the plugin gives, and which Reservation, if several are usable."""

    def decided(self, thing, decided):
        self.decision = decided.decision
        return super().decided(thing, decided)

    def same_verdicts(self, where, attempt, decided):
        """Of pods that ask for GPUs, nodes alone: which plugin says what depends on which Reservation is looked at."""
        outcome, early = decided.outcome, attempt.verdicts.pre_filtered.status
        if not decided.decision or wanted(decided.decision.pod) is None or outcome.rejected or early.code.rejects:
            return super().same_verdicts(where, attempt, decided)
        names_of = self.offline.cluster.table.names
        ours = sorted(names_of[row] for row in attempt.verdicts.rows.tolist())
        self.same("verdicts", where, ours, sorted(outcome.feasible))
        return bool(ours) and ours == sorted(outcome.feasible)

    def place(self, where, thing, decided, attempt, node):
        self.given = {}
        if wanted(decided.decision.pod) is None:
            super().place(where, thing, decided, attempt, node)
            return
        row, pod = self.offline.cluster.table.row_of[node], attempt.pod
        self.place_in_vain(where, attempt, row)
        status, _ = self.offline.take(attempt, row)
        if not self.same("uses", f"{where}, refused", (status.plugin, status.reasons) if not status.ok else None, None):
            return
        plugins = self.offline.profiles[PROFILE].plugins
        fact = plugins[names.DEVICES].columns.allocation
        allocation = fact.of(pod)
        annotations = {names.DEVICE_ALLOCATED: fact.text(allocation)} if allocation else {}
        self.given = {"annotations": annotations}
        info = None
        if thing["kind"] == "Pod":
            used = self.used(pod)
            infos = {} if decided.decision.wish.ignores else self.usable(decided.decision, node)
            self.same("uses", where, used in infos if infos else used, True if infos else None)
            info = infos.get(used)
            self.given["used"] = used or ""
        self.compare_devices(where, decided, node, info, held({"metadata": {"annotations": annotations}}))

    def compare_scores(self, where, attempt, outcome):
        """Where several are usable, DeviceShare has a say in which."""
        decision = self.decision
        several = any(len(self.usable(decision, node)) > 1 for node in outcome.feasible if not decision.is_reserve)
        if not several or wanted(decision.pod) is None:
            super().compare_scores(where, attempt, outcome)

    def usable(self, decision, node):
        return {info.name: info for info in usable(decision, self.cluster.nodes[node])}

    def compare_devices(self, where, decided, node, info, given):
        """What was given is what the pod asks for, out of what it may have."""
        count, each = wanted(decided.decision.pod)
        self.same("devices", f"{where}, given", sorted(given.values()), [each] * count)
        amounts = may_have(decided.decision, node, info)
        too_much = {minor: n for minor, n in given.items() if n > amounts.get(minor, 0)}
        self.same("devices", f"{where}, of {amounts} using {info and info.name}", too_much, {})
