"""Short ways to write Reservations and pods."""

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.plugins.reservation.kinds import Reservation

STATE = ClusterState()


def pod(name="p", namespace="default", *, labels=None, owners=(), bound=False, uid=None):
    """A pod as the scheduler keeps it; `owners` are owner references as JSON."""
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "labels": labels or {},
        "ownerReferences": list(owners),
    }
    spec = {"containers": [{"name": "c"}], **({"nodeName": "n1"} if bound else {})}
    return STATE.pods.build(convert({"metadata": meta, "spec": spec}, core.Pod))


def reference(name="rs", kind="ReplicaSet", **more):
    """An owner reference: a controller's, unless something else is given."""
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True, **more}


def reservation(name="r", *, labels=None, annotations=None, meta=None, template=None, status=None, **spec):
    """A Reservation with a valid spec; `spec` are fields that differ."""
    return convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": "7",
                "labels": labels or {},
                "annotations": annotations or {},
                **(meta or {}),
            },
            "spec": {
                "template": {"spec": {"containers": [{"name": "c"}]}} if template is None else template,
                "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                "ttl": "24h",
                **spec,
            },
            "status": status or {},
        },
        Reservation,
    )
