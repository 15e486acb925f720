"""koordsched: a Kubernetes scheduler in Python, drop-in for kube-scheduler and koord-scheduler."""

__version__ = "0.1.0"
