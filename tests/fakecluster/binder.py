"""Stands in for a scheduler in tests of everything else: binds pods to nodes in turns."""


class TurnBinder:
    """Binds every pod that has no node: to the one its field affinity names, else to the next that lets it in."""

    def __init__(self, registry):
        self._registry = registry
        self._nodes = registry.resource("", "v1", "nodes")
        self._turn = 0
        registry.subscribe(registry.pods, self._pod_changed)
        registry.subscribe(self._nodes, self._node_changed, replay=False)

    def _node_changed(self, kind, old, new):
        if kind != "DELETED" and (old is None or old["spec"] != new["spec"]):
            for record in list(self._registry.scan(self._registry.pods)):
                self._pod_changed("MODIFIED", None, record.obj())

    def _pod_changed(self, kind, old, new):
        spec, metadata = new["spec"], new["metadata"]
        if kind == "DELETED" or spec.get("nodeName") or metadata.get("deletionTimestamp"):
            return
        if spec.get("schedulingGates"):
            return
        required = (
            spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        )
        terms = (required or {}).get("nodeSelectorTerms", [])
        pinned = [field["values"][0] for term in terms for field in term.get("matchFields", [])]
        open_nodes = [
            record.name
            for record in self._registry.scan(self._nodes)
            if not record.obj()["spec"].get("unschedulable") and not record.obj()["spec"].get("taints")
        ]
        if pinned or open_nodes:
            self._turn += 1
            target = pinned[0] if pinned else open_nodes[self._turn % len(open_nodes)]
            self._registry.bind(metadata["namespace"], metadata["name"], metadata["uid"], target)
