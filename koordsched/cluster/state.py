"""ClusterState: nodes, pods on them, and the scheduler's own assumptions, always consistent.

A pod on a node is *added* (the API server says so) or *assumed* (we decided so and the binding is under
way). Assuming counts a pod against its node at once; forgetting takes that back. An assumed pod stays
until the watch confirms it, it is deleted, or its binding fails: there is no expiry (core spec 3.5).
Pods may be known before their node, or stay when it goes: they wait in `orphans` and are counted when the
node appears.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast

from koordsched.api import core
from koordsched.cluster.accounting import (
    Accounts,
    Concerned,
    PodAccountant,
    Sharing,
    SharingAccount,
    counts_the_same,
)
from koordsched.cluster.announcements import Announcements
from koordsched.cluster.changelog import Facet
from koordsched.cluster.claimedresources import ClaimedResources, as_status, of_status, total_of
from koordsched.cluster.events import ASSIGNED_POD_DELETE, ActionType
from koordsched.cluster.facts import PodFact, PodFacts, ShapeFacts
from koordsched.cluster.interning import LabelSets
from koordsched.cluster.listeners import ListenerErrors
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.objects import Objects
from koordsched.cluster.observers import PodObserver, PodObservers
from koordsched.cluster.overcommitment import Overcommitments
from koordsched.cluster.pod import Pod, PodFactory, PodWithFacts, with_facts
from koordsched.cluster.ports import shape_ports
from koordsched.cluster.resources import Requests
from koordsched.cluster.shape import PodShape, PodShapes
from koordsched.cluster.whatif import WhatIf

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class ClusterState(Announcements):
    """Everything that the scheduler knows about nodes and the pods on them."""

    def __init__(self) -> None:
        super().__init__()
        self.listener_errors = ListenerErrors()
        """Of everything that plugins register to be called with pods, nodes and objects."""
        self.table = NodeTable(errors=self.listener_errors)
        self.overcommitments = Overcommitments(self.table, self.pods_on)
        self.read_annotations: set[str] = set()
        """Keys of the annotations that plugins read. Those of nodes and other objects are added by the plugins;
        journals and snapshots keep them."""
        self.shape_facts = ShapeFacts(self.read_annotations)
        """Labels, annotations and owner facts that plugins declare to be part of a pod's shape."""
        self.shapes = PodShapes(self.table.resource_names, self.shape_facts)
        self.label_sets = LabelSets()
        self.pod_facts = PodFacts(self.read_annotations)
        """Annotations that plugins declare to read of pods on nodes: their allocations."""
        self._claimed: PodFact[ClaimedResources] | None = None
        self.pods = PodFactory(self.shapes, self.label_sets, self.pod_facts)
        self.objects = Objects(self.listener_errors)
        self.assigned: dict[str, Pod] = {}
        """uid -> pod, for every pod on a node, assumed ones included."""
        self.assumed: dict[str, Pod] = {}
        """uid -> pod, for those whose binding is not confirmed yet."""
        self.orphans: dict[str, dict[str, Pod]] = {}
        """Node name -> uid -> pod, for pods on nodes that we do not know (yet, or any more)."""
        self._on_row: list[dict[str, Pod]] = []
        self.accountants: list[PodAccountant] = []
        """Added by `add_accountant`."""
        self._concerned = Concerned(())
        self._amendable: list[PodAccountant] = []
        """Those of them that may count by what `amend` changes."""
        self._readers: dict[PodFact[Any], list[PodAccountant]] = {}
        self._accounts = Accounts(
            self.table, self.listener_errors, lambda pod: self.announce(ASSIGNED_POD_DELETE, pod, None)
        )
        self._sharing: Sharing | None = None
        self._observers = PodObservers(self.listener_errors)
        self._shared: dict[object, Any] = {}

    def shared(self, build: Callable[[ClusterState], T], key: object = None) -> T:
        """What plugins of all profiles share (an accountant, an index); `build` makes it once.

        `key`: what it is known by, if not by `build`.
        """
        key = build if key is None else key
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = build(self)
        return cast(T, found)

    def add_accountant(
        self,
        accountant: PodAccountant,
        *,
        reads: Iterable[PodFact[Any]] = (),
        amendable: bool = True,
        concerns: Callable[[PodShape], bool] | None = None,
    ) -> None:
        """Registers a plugin's accounting, and adds the pods that are there already.

        `reads`: the facts that it counts by; when one of a pod's changes, the pod is removed with the old and added
        with the new one. `amendable`: it may count by requests or facts; otherwise `amend` makes no difference to it.
        `concerns`: whether pods of a shape may make a difference to it; None: of any.
        """
        self.accountants.append(accountant)
        last = (len(self._concerned) - 1) if self._sharing is not None else len(self._concerned)
        self._concerned = Concerned((*self._concerned[:last], (accountant, concerns), *self._concerned[last:]))
        if amendable:
            self._amendable.append(accountant)
        for fact in reads:
            self._readers.setdefault(fact, []).append(accountant)
        for pod in self.assigned.values():
            if pod.row >= 0 and (facets := self._accounts.count(accountant, pod.row, pod, 1)):
                self.table.touch(pod.row, facets)

    def count_claimed(self) -> PodFact[ClaimedResources]:
        """From now on, what the claims of pods take of their nodes counts as requested; the fact that says what it is.
        To be called before the first pod is read.
        """
        if self._claimed is None:
            self.pods.counts_claimed = True
            self._claimed = self.pod_facts.declare_status("claimed-resources", of_status, as_status)
        return self._claimed

    def set_sharing(self, sharing: Sharing) -> None:
        """Some pods count less while others use parts of what they hold. To be called before the first pod is read."""
        self._sharing = sharing
        self._concerned = Concerned((*self._concerned, (SharingAccount(sharing), None)))

    def whole(self, pod: Pod) -> Pod:
        """A pod on a node as it would count if nothing that it holds was in use; usually the pod itself."""
        found = self._sharing.whole_of(pod) if self._sharing is not None else (pod.requests, pod.facts)
        if found == (pod.requests, pod.facts):
            return pod
        whole = with_facts(pod)
        whole.requests, whole.facts = found
        return whole

    def holder_of(self, pod: Pod) -> str | None:
        """The uid of the pod that counts what this pod on a node uses as soon as this one is gone; usually None."""
        return self._sharing.holder_of(pod) if self._sharing is not None and pod.facts else None

    def add_observer(self, observer: PodObserver, *, virtual: bool = False) -> None:
        """Registers an observer of all pods, and of virtual ones if it wants them.

        It gets those that are on nodes already.
        """
        self._observers.add(observer, self.assigned.values(), virtual=virtual)

    def replace_observer(self, observer: PodObserver, by: PodObserver) -> None:
        """From now on another observer is called, which passes the calls on. Raises ValueError for one that is not
        registered.
        """
        self._observers.replace(observer, by)

    @property
    def observed(self) -> bool:
        """Whether there are observers, which need the pods of other schedulers, too."""
        return bool(self._observers)

    def pods_on(self, row: int) -> dict[str, Pod]:
        """uid -> pod for the pods on a row. Not to be changed by the caller."""
        return self._on_row[row]

    # --- nodes -----------------------------------------------------------------------------------

    def upsert_node(self, node: core.Node) -> tuple[ActionType, bool]:
        """Adds or updates a node. Returns what changed, as event bits, and whether the node is new."""
        self._outside_transactions()
        name = node.metadata.name
        known = self.table.row_of.get(name)
        if known is not None:
            before = self.table.nodes[known]
            changed = self.table.update(node)
            if changed & ActionType.UPDATE_NODE_ALLOCATABLE and before is not None:
                read = self.table.resource_names.read
                resources = read(before.status.allocatable).keys() | read(node.status.allocatable).keys()
                self.overcommitments.node_changed(known, resources)
            return changed, False
        while len(self._on_row) <= self.table.size:  # before hooks read the pods of the new row
            self._on_row.append({})
        row = self.table.add(node)
        for pod in self.orphans.pop(name, {}).values():
            self._place(pod, row)
            if pod.uid in self.assumed:
                self._observers.placed(pod, True)  # the pod may have changed since: a newer version has been seen
            else:
                self._observers.seen(pod, True)
        return ActionType.ADD, True

    def remove_node(self, name: str) -> bool:
        """Removes a node; its pods stay known. Returns whether it was there."""
        self._outside_transactions()
        row = self.table.row_of.get(name)
        if row is None:
            return False
        for pod in list(self._on_row[row].values()):
            self._displace(pod)
            self.orphans.setdefault(name, {})[pod.uid] = pod
        self._accounts.row_is_cleared(row)
        self.table.remove(name)
        return True

    # --- pods ------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod) -> None:
        """The newest version of a pod that has no node by the API server's word; of any scheduler."""
        self._observers.seen(pod, pod.uid in self.assigned)

    def pod_gone(self, uid: str) -> None:
        """The pod is gone or finished. If it was on a node, `remove_pod` takes it off."""
        self._observers.gone(uid)

    def set_pod(self, pod: Pod) -> Pod | None:
        """Takes over a pod with a node as the API server has it; returns the pod as it was known before.

        Confirms an assumed pod; if it is on another node than assumed, the API server is right.
        """
        self._outside_transactions()
        before = self.assigned.get(pod.uid)
        self.assumed.pop(pod.uid, None)
        if before is None:
            self._attach(pod)
        elif before.row >= 0 and before.node == pod.node and counts_the_same(before, pod):
            # The usual confirmation: nothing to account again, no row to dirty, unless its allocation changed.
            pod.row = before.row
            self._on_row[pod.row][pod.uid] = pod
            self.assigned[pod.uid] = pod
            if before.facts != pod.facts or (pod.facts and self._sharing is not None):
                self._recount(before, pod)
        else:
            self._detach(before)
            self._attach(pod)
        self._observers.seen(pod, True)
        return before

    def remove_pod(self, uid: str) -> Pod | None:
        """The pod is gone; returns it as it was known."""
        self._outside_transactions()
        before = self.assigned.get(uid)
        if before is not None:
            self.assumed.pop(uid, None)
            self._detach(before)
            self._observers.placed(before, False)
        return before

    def assume(self, pod: Pod, row: int) -> None:
        """Counts a pending pod against the node it was just placed on. Raises ValueError if it has one, RuntimeError
        while a transaction is paused.
        """
        self._not_paused()
        if pod.uid in self.assigned:
            raise ValueError(f"pod {pod.key} ({pod.uid}) is on node {self.assigned[pod.uid].node} already")
        self.table.outside_what_ifs()
        pod.node = self.table.names[row]
        self.assumed[pod.uid] = pod
        self.assigned[pod.uid] = pod
        self._place(pod, row)
        self._observers.placed(pod, True)

    def forget(self, pod: Pod) -> bool:
        """Takes an assumption back. Returns False if it was confirmed, replaced or deleted meanwhile. Raises
        RuntimeError while a transaction is paused.
        """
        if self.assumed.get(pod.uid) is not pod:
            return False
        self._not_paused()
        self._detach(pod)
        del self.assumed[pod.uid]
        pod.node = ""
        self._observers.placed(pod, False)
        return True

    def allocate(self, pod: Pod, fact: PodFact[H], value: H | None) -> None:
        """Sets a fact of a pod that is assumed, or is about to be: what a Reserve plugin decided. None takes it
        away. A running pod may be given something, too. Raises RuntimeError while a transaction is paused."""
        self._not_paused()
        if not isinstance(pod, PodWithFacts):
            pod = self._with_facts(pod)
        facts = self.pod_facts.shared(fact.put(pod.facts, value, len(self.pod_facts)))
        if facts == pod.facts:
            return
        requests = pod.requests
        if fact is self._claimed:
            taken = total_of(self._claimed.among(facts) or ())
            requests = self.shapes.resized(pod.shape, pod.shape.spec, core.PodStatus(), taken)
        if pod.row < 0 or self.assigned.get(pod.uid) is not pod:
            pod.facts = facts  # on no row, or another version of the pod is: that one counts
            pod.requests = requests
            return
        row, changed = pod.row, Facet.FACTS
        if requests is not pod.requests:
            self.table.touch(row, self.amend(pod, requests, facts))
            return
        readers = self._readers.get(fact, ())
        for accountant in readers:
            changed |= self._accounts.count(accountant, row, pod, -1)
        pod.facts = facts
        for accountant in readers:
            changed |= self._accounts.count(accountant, row, pod, 1)
        if self._sharing is not None:
            changed |= self._facts_changed(self._sharing, row, pod)
        self.table.touch(row, changed)

    def _with_facts(self, pod: Pod) -> PodWithFacts:
        """Makes room for facts in a pod on a node that was read without any. Raises ValueError for other pods."""
        if self.assigned.get(pod.uid) is not pod or self.is_assumed(pod.uid):
            raise ValueError(f"pod {pod.key} was read before the facts of plugins were declared")
        roomy = with_facts(pod)
        self.assigned[pod.uid] = roomy
        pods = self._on_row[pod.row] if pod.row >= 0 else self.orphans[pod.node]
        pods[pod.uid] = roomy
        return roomy

    def allocate_all(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """The same for all facts: those in these annotations are set, all others taken away."""
        for fact in self.pod_facts:
            text = annotations.get(fact.annotation)
            self.allocate(pod, fact, fact.parse(text) if text is not None else None)

    def amend(self, pod: Pod, requests: Requests, facts: tuple[object, ...], *, away: bool = False) -> int:
        """A pod counts other requests and facts from now on; what it shows in the API stays. For a `Sharing`.

        `away`: a what-if has taken the pod off its row. Returns the facets that changed, 0 if none; the row is not
        touched.
        """
        facts = self.pod_facts.shared(facts)
        if requests == pod.requests and facts == pod.facts:
            return 0
        row, changed, before = pod.row if not away else -1, 0, pod.requests
        for accountant in self._amendable if row >= 0 else ():
            changed |= self._accounts.count(accountant, row, pod, -1)
        pod.requests = requests
        if isinstance(pod, PodWithFacts):
            pod.facts = facts
        if row < 0:
            return 0
        self.table.count_requests(row, before, -1)
        self.table.count_requests(row, requests, 1)
        changed |= Facet.RESOURCES
        for accountant in self._amendable:
            changed |= self._accounts.count(accountant, row, pod, 1)
        if not self.table.hypothetical:
            self.overcommitments.pod_removed(row)
            self.overcommitments.pod_added(row, pod)
        return changed

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod is assumed and not confirmed yet."""
        return uid in self.assumed

    def _recount(self, before: Pod, pod: Pod) -> None:
        """A pod that stays on its row has other facts: accountants that read these count it anew."""
        row, changed = pod.row, Facet.FACTS if before.facts != pod.facts else 0
        changed_facts = [fact for fact in self._readers if fact.of(before) != fact.of(pod)]
        readers = {reader: None for fact in changed_facts for reader in self._readers[fact]}
        for accountant in readers:
            changed |= self._accounts.count(accountant, row, before, -1)
            changed |= self._accounts.count(accountant, row, pod, 1)
        if self._sharing is not None:
            changed |= self._facts_changed(self._sharing, row, pod)
        if changed:
            self.table.touch(row, changed)

    def _facts_changed(self, sharing: Sharing, row: int, pod: Pod) -> int:
        try:
            return sharing.facts_changed(row, pod)
        except Exception as error:
            self.listener_errors.report(sharing, pod.title, error)
            return Facet.RESOURCES

    def _attach(self, pod: Pod) -> None:
        self.assigned[pod.uid] = pod
        row = self.table.row_of.get(pod.node)
        if row is None:
            self.orphans.setdefault(pod.node, {})[pod.uid] = pod
        else:
            self._place(pod, row)

    def _detach(self, pod: Pod) -> None:
        self.table.outside_what_ifs()
        del self.assigned[pod.uid]
        if pod.row >= 0:
            self._displace(pod)
            return
        waiting = self.orphans[pod.node]
        del waiting[pod.uid]
        if not waiting:
            del self.orphans[pod.node]

    def _place(self, pod: Pod, row: int) -> None:
        pod.row = row
        self._on_row[row][pod.uid] = pod
        self.table.touch(row, self._account(pod, row, 1))
        self.overcommitments.pod_added(row, pod)

    def _displace(self, pod: Pod) -> None:
        self.table.outside_what_ifs()
        row = pod.row
        del self._on_row[row][pod.uid]
        pod.row = -1
        self.table.touch(row, self._account(pod, row, -1))
        self.overcommitments.pod_removed(row)

    def _account(self, pod: Pod, row: int, sign: int) -> int:
        """Adds (1) or takes away (-1) what the pod counts against a row; returns the facets changed."""
        table, shape = self.table, pod.shape
        table.count_requests(row, pod.requests, sign)
        table.pods_count.data[row] += sign
        facets: int = Facet.RESOURCES
        ports = shape_ports(shape)
        if ports:
            table.ports.add(row, ports, sign)
            facets |= Facet.PORTS
        failed_before = pod.uid in self.listener_errors.owed
        for accountant in shape.compiled(self._concerned, self._concerned):
            if failed_before:
                facets |= self._accounts.count(accountant, row, pod, sign)
                continue
            try:
                facets |= accountant.pod_added(row, pod) if sign > 0 else accountant.pod_removed(row, pod)
            except Exception as error:
                facets |= self._accounts.failed(accountant, row, pod, sign, error)
        return facets

    # --- transactions ------------------------------------------------------------------------------

    def evict(self, pod: Pod) -> tuple[str, ...]:
        """Inside a transaction: takes a pod off its row as if it were gone. Returns what `restore` needs.

        Raises ValueError for a pod that is on no row.
        """
        assert self.in_transaction, "inside a transaction"
        if pod.row < 0 or self.assigned.get(pod.uid) is not pod:
            raise ValueError(f"pod {pod.key} is on no node")
        order = tuple(self._on_row[pod.row])
        self._displace(pod)
        self._observers.placed(pod, False)
        return order

    def restore(self, pod: Pod, row: int, order: tuple[str, ...]) -> None:
        """Undoes `evict`; the pods of the row are in the same order as before."""
        self._place(pod, row)
        pods = self._on_row[row]
        self._on_row[row] = {uid: pods[uid] for uid in order}
        self._observers.placed(pod, True)

    # --- what-ifs ----------------------------------------------------------------------------------

    def what_if(self, *, add: Iterable[tuple[int, Pod]] = ()) -> WhatIf:
        """Inside, the table reads as if these pods were on those rows; afterwards as before.

        Legal on the live table because a scheduling cycle is synchronous: nothing else reads it meanwhile. Such changes
        are not logged, so cached verdicts neither see nor keep them; asking for cached verdicts inside, or recording a
        change of a row, raises RuntimeError.
        """
        return WhatIf(self.table, self._account, add)
