"""Volumes: what must hold whenever a pod is bound or a volume is written, judged from the server's own objects."""

from tests.reference.plugins.nodevolumelimits import volume_of_claim
from tests.reference.selectors import node_selector_matches
from tests.reference.volumes import SELECTED_NODE, all_claims, annotations_of, find, is_bound, owned_by
from tests.reference.world import World, namespace_of
from tests.simulation.history import History
from tests.simulation.invariants import NODES
from tests.simulation.volumeusers import STORAGE

CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


class VolumeInvariants:
    """ReadWriteOnce alone is not a scheduler's to keep: where its volume can be reached is (node affinity)."""

    def __init__(self, invariants, server):
        self._invariants = invariants
        self._server = server
        self._csi_nodes = History().follow(server, server.resource("CSINode", STORAGE))
        self._classes = History().follow(server, server.resource("StorageClass", STORAGE))
        self._claims, self._volumes = History(), History()
        registry = server.registry
        registry.subscribe_changes(server.resource("PersistentVolumeClaim"), self._claim_changed)
        registry.subscribe_changes(server.resource("PersistentVolume"), self._volume_changed)

    def objects(self):
        """All storage objects as they are, for the naive reference."""
        return [
            thing
            for history in (self._csi_nodes, self._classes, self._claims, self._volumes)
            for thing in history.newest()
        ]

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is bound."""

    def bound(self, pod, decision):
        """A pod was bound: its volumes can be reached from its node, nobody else has what it alone may have, and its
        node can hold them."""
        name = pod["metadata"]["name"]
        others = list(self._invariants.known_others(pod, decision))
        if self._invariants.reserved is not None:
            others = self._invariants.reserved.in_sight(pod, decision, others)
        for claim_name, _ in all_claims(pod):
            claim = self._latest(CLAIMS, self._claims, (namespace_of(pod), claim_name), decision)
            if claim is None:
                continue  # deleted after the decision
            if not is_bound(claim):
                self._fail(decision, f"pod {name} before its claim {claim_name} is bound")
                continue
            self._check_reach(pod, claim, decision)
            if "ReadWriteOncePod" in claim["spec"]["accessModes"]:
                rivals = [o["metadata"]["name"] for o in others if _uses(o, claim) and self._is_placed(o, decision)]
                if rivals:
                    self._fail(decision, f"pod {name}, whose claim {claim_name} is used by {rivals}")
        self._check_limit(pod, [other for other in others if _node(other) == decision.node], decision)

    def _is_placed(self, pod, decision):
        """Whether its node was there: of pods on nodes that are gone nobody asks what they use (upstream)."""
        return None not in self._invariants.nodes.states_since(("", _node(pod)), decision.versions[NODES])

    def _latest(self, path, history, key, decision):
        states = history.since(key, decision.versions[path])
        return states[-1] if states else None

    def _check_reach(self, pod, claim, decision):
        key = ("", claim["spec"]["volumeName"])
        volumes = self._volumes.since(key, decision.versions[VOLUMES])
        nodes = self._invariants.node_states(decision)
        for volume in volumes:
            required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or None
            if required is None or any(node_selector_matches(required, node) for node in nodes):
                return
        self._fail(decision, f"pod {pod['metadata']['name']} to {decision.node}, where volume {key[1]} is not")

    def _check_limit(self, pod, others, decision):
        """For some state of the driver's limit that may have been known; claims count as the replica knew them."""
        worlds, there = self._known_worlds(decision), set()
        wanted = _attached(pod, worlds)
        for other in others:
            there |= _attached(other, worlds)
        problems = []
        for state in self._csi_nodes.states_since(("", decision.node), decision.versions[CSI_NODES]):
            limits = {
                driver["name"]: driver["allocatable"]["count"]
                for driver in (state["spec"]["drivers"] if state is not None else ())
                if (driver.get("allocatable") or {}).get("count") is not None
            }
            over = [
                f"{driver}: {len(both)} of {limits[driver]}"
                for driver in sorted({driver for driver, *_ in wanted - there})
                if driver in limits and len(both := {v for v in wanted | there if v[0] == driver}) > limits[driver]
            ]
            if not over:
                return
            problems += over
        if problems:
            self._fail(decision, f"pod {pod['metadata']['name']} to {decision.node}, too many volumes: {problems}")

    def _known_worlds(self, decision):
        """The storage objects as they were known when it was decided; while a list was under way, also as they are."""
        versions = decision.versions
        then = [*self._classes.newest(), *self._claims.at(versions[CLAIMS]), *self._volumes.at(versions[VOLUMES])]
        return [World(then)] + ([World(self.objects())] if decision.listing & {CLAIMS, VOLUMES} else [])

    def _fail(self, decision, text):
        self._invariants.fail(f"{decision.writer} binds {text}")

    # --- changes ---------------------------------------------------------------------------------------

    def _claim_changed(self, change):
        self._claims.note(change)
        new, old, writer = change.new, change.old, self._server.writer
        chosen = annotations_of(new).get(SELECTED_NODE)
        self._invariants.tell(change, f" volume={new['spec'].get('volumeName', '')} selected={chosen}")
        self._invariants.one_acts(f"a write to claim {change.record.name}")
        if change.type != "MODIFIED":
            return
        before = annotations_of(old).get(SELECTED_NODE)
        if writer and before and before != chosen:
            self._invariants.fail(f"{writer} moves claim {change.record.name} from node {before} to {chosen}")
        volume = new["spec"].get("volumeName")
        if volume and volume != old["spec"].get("volumeName"):
            others = [
                claim["metadata"]["name"]
                for claim in self._claims.newest()
                if claim["spec"].get("volumeName") == volume and claim["metadata"]["uid"] != new["metadata"]["uid"]
            ]
            if others:
                self._invariants.fail(f"volume {volume} of claim {change.record.name} is that of {others} too")

    def _volume_changed(self, change):
        self._volumes.note(change)
        new, old, writer = change.new, change.old, self._server.writer
        reference = new["spec"].get("claimRef") or {}
        status = (new.get("status") or {}).get("phase", "")
        self._invariants.tell(change, f" claim={reference.get('namespace')}/{reference.get('name')} {status}")
        self._invariants.one_acts(f"a write to volume {change.record.name}")
        before = ((old or {}).get("spec") or {}).get("claimRef") or {}
        if writer and before.get("uid") and before["uid"] != reference.get("uid"):
            text = f"{writer} gives volume {change.record.name} of claim {before['name']} to {reference.get('name')}"
            self._invariants.fail(text)


def _node(pod):
    return pod["spec"].get("nodeName")


def _uses(pod, claim):
    if namespace_of(pod) != namespace_of(claim):
        return False
    return any(name == claim["metadata"]["name"] for name, ephemeral in all_claims(pod) if not ephemeral)


def _attached(pod, worlds):
    """(driver, namespace, claim) of the pod's volumes that count in each of the worlds. One claim has one volume, which
    may not be there yet."""
    return set.intersection(*({*_counting(pod, world)} for world in worlds))


def _counting(pod, world):
    for name, ephemeral in all_claims(pod):
        claim = find(world, "PersistentVolumeClaim", name, namespace_of(pod))
        if claim is None or (ephemeral and not owned_by(claim, pod)):
            continue
        volume = volume_of_claim(claim, world)
        if volume is not None:
            yield volume[0], namespace_of(claim), name
