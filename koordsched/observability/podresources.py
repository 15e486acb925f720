"""/metrics/resources: what every pod requests and may use (`pkg/scheduler/metrics/resources/resources.go`).

One line per pod and resource: a million lines in a large cluster. They are written as a stream of text pieces rather
than through prometheus-client, which would hold them all and take ten times as long; what pods of one shape have in
common is formatted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from koordsched.api.quantity import NANO, QuantityError
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU, Requests, ResourceNames, limits_of
from koordsched.cluster.shape import PodShape

REQUEST = "kube_pod_resource_request"
LIMIT = "kube_pod_resource_limit"

_HELP = {
    REQUEST: "[STABLE] What a pod counts against its node, by resource, in the unit of the resource if it has one.",
    LIMIT: "[STABLE] What a pod may use, by resource, in the unit of the resource if it has one.",
}

_PODS_AT_ONCE = 200

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Tails = tuple[str, ...]
"""For each resource of a pod, the end of its line: the labels that follow the node, and the value."""


def unit_of(resource: str) -> str:
    """The unit label: cores, bytes, integer (attachable volumes) or nothing."""
    if resource == "cpu":
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""


class PodResources:
    """Writes both metrics for the pods that `pods` gives at the time: those on nodes and those that wait.

    Finished pods are not among the scheduler's pods, so they are left out as upstream leaves them out.
    """

    def __init__(self, pods: Callable[[], Iterable[Pod]], resources: ResourceNames) -> None:
        self._pods = pods
        self._resources = resources

    async def render(self) -> AsyncIterator[bytes]:
        """The text, piece by piece; between two pieces the loop gets its turn. A pod deleted meanwhile may show."""
        pods = [pod for pod in self._pods() if not pod.virtual]
        for name, tails_of in ((REQUEST, self._request_tails), (LIMIT, self._limit_tails)):
            yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n".encode()
            for start in range(0, len(pods), _PODS_AT_ONCE):
                if piece := self._write(name, pods[start : start + _PODS_AT_ONCE], tails_of):
                    yield piece
                await asyncio.sleep(0)

    @staticmethod
    def _write(name: str, pods: Sequence[Pod], tails_of: Callable[[Pod], Tails]) -> bytes:
        lines = []
        for pod in pods:
            if tails := tails_of(pod):
                # Names of objects have no characters that would need escaping.
                head = f'{name}{{namespace="{pod.namespace}",pod="{pod.name}",node="{pod.node}",'
                lines += [head + tail for tail in tails]
        return "".join(lines).encode()

    def _request_tails(self, pod: Pod) -> Tails:
        if pod.requests is not pod.shape.requests:
            return self._tails_of_requests(pod.shape, pod.requests)
        return pod.shape.compiled(REQUEST, lambda shape: self._tails_of_requests(shape, shape.requests))

    def _limit_tails(self, pod: Pod) -> Tails:
        return pod.shape.compiled(LIMIT, self._tails_of_limits)

    def _tails_of_requests(self, shape: PodShape, requests: Requests) -> Tails:
        names = self._resources.names
        return _tails(shape, [(names[i], amount / 1000 if i == CPU else amount) for i, amount in requests.amounts])

    @staticmethod
    def _tails_of_limits(shape: PodShape) -> Tails:
        try:
            limits = limits_of(shape.spec)
        except QuantityError:
            # Nothing is decided by limits, so they were never checked before.
            return ()
        return _tails(shape, sorted((name, amount / NANO) for name, amount in limits.items()))


def _tails(shape: PodShape, amounts: Iterable[tuple[str, float]]) -> Tails:
    scheduler = shape.scheduler_name.translate(_ESCAPES)
    priority = "" if shape.spec.priority is None else str(shape.spec.priority)
    return tuple(
        f'scheduler="{scheduler}",priority="{priority}",resource="{name.translate(_ESCAPES)}",'
        f'unit="{unit_of(name)}"}} {_number(amount)}\n'
        for name, amount in amounts
        if amount
    )


def _number(amount: float) -> str:
    """Whole numbers without a fraction."""
    return str(int(amount)) if amount == int(amount) else repr(float(amount))
