"""Profiles with several plugins, and an API server with the kinds of all of them."""

from tests.embedded import DEFAULT_CONFIG
from tests.parity.koord import custom_resources
from tests.plugins.reservation.running import CRD, ReservationCluster

AFFINITY = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
"""Annotations of a pod that must use a Reservation."""
CPUS = {"cpu": "2", "memory": "2Gi"}

_POINTS = {
    "preEnqueue": ["Coscheduling"],
    "preFilter": ["Reservation", "Coscheduling", "ElasticQuota"],
    "filter": ["LoadAwareScheduling", "Reservation"],
    "preScore": ["Reservation", "Coscheduling"],
    "score": ["LoadAwareScheduling", "Reservation", "Coscheduling"],
    "reserve": ["LoadAwareScheduling", "Reservation", "Coscheduling", "ElasticQuota"],
    "permit": ["Coscheduling"],
    "preBind": ["Reservation", "Coscheduling"],
    "postBind": ["Coscheduling"],
}
_ALONE = {
    "postFilter": ["Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption"],
    "bind": ["Reservation", "DefaultBinder"],
}
_IN_TREE = ("DefaultPreemption", "DefaultBinder")


def profile(*plugins, name="default-scheduler", args=None):
    """A profile with these plugins besides the default ones, in the order of Koordinator's.

    `args`: arguments by plugin.
    """
    chosen = {*plugins, *_IN_TREE}
    points = {}
    for point, names in (_POINTS | _ALONE).items():
        enabled = [{"name": each} for each in names if each in chosen]
        off = {"disabled": [{"name": "*"}]} if point in _ALONE else {}
        points[point] = {**off, "enabled": enabled}
    config = [{"name": plugin, "args": given} for plugin, given in (args or {}).items()]
    return {"schedulerName": name, "plugins": points, "pluginConfig": config}


def configuration(*profiles, **more):
    """A configuration with these profiles."""
    return {**DEFAULT_CONFIG, "leaderElection": {"leaderElect": False}, "profiles": list(profiles), **more}


class PairCluster(ReservationCluster):
    """With the kinds of all plugins."""

    def __init__(self, nodes=("n1",), seed=1, cpu="10"):
        super().__init__((), seed)
        for thing in custom_resources():
            if thing["metadata"]["name"] not in CRD.read_text():
                self.create(thing)
        for name in nodes:
            self.node(name, cpu)

    def put(self, name, node="", requests=None, *, labels=None, annotations=None, phase="", **spec):
        """A pod as it is, past admission: app=web unless other labels are given; of a profile by `schedulerName`."""
        container = {"name": "c", "image": "x", "resources": {"requests": requests or CPUS}}
        meta = {"name": name, "labels": {"app": "web"} if labels is None else labels, "annotations": annotations or {}}
        spec = {
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        }
        if node:
            spec["nodeName"] = node
        status = {"phase": phase or ("Running" if node else "Pending")}
        self.insert({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})

    def where(self, name):
        """The node of a pod; "" while it has none, None if it is gone."""
        found = self.get("Pod", name)
        return None if found is None else found["spec"].get("nodeName", "")

    def said(self, name):
        """The message of a pod's condition PodScheduled."""
        conditions = self.get("Pod", name)["status"].get("conditions") or ()
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    def told(self, name="r"):
        """The message of a Reservation's condition Scheduled."""
        conditions = self.status(name).get("conditions") or ()
        return next((each.get("message", "") for each in conditions if each["type"] == "Scheduled"), "")

    def labelled(self, reservation, **labels):
        """Changes labels of a Reservation."""
        self.patch("Reservation", reservation, {"metadata": {"labels": labels}})


def template(requests=None, **more):
    """The template of a Reservation; `metadata` apart, `more` goes to its spec."""
    metadata = more.pop("metadata", {})
    container = {"name": "c", "image": "x", "resources": {"requests": requests or CPUS}}
    return {"metadata": metadata, "spec": {"containers": [container], **more}}
