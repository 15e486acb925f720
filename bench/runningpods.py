"""Running pods by the hundred thousand: one manifest, encoded once, in which a few places change."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from bench.manifests import Manifest, pod
from bench.workloads import load

REPLICAS = 20
"""Pods that share their labels, as those of a Deployment do."""


def encoded(
    nodes: list[str],
    count: int,
    *,
    owner: Manifest,
    unique_labels: bool,
    stored: bool,
    full_size: bool = True,
) -> Iterator[bytes]:
    """`count` pods as JSON, on the nodes in turns; `owner` is the reference to what controls them.

    `unique_labels`: every pod also has a label of its own, as in StatefulSets. `stored`: as an API server has them, not
    as it takes them. `full_size`: with all that a real pod has and a scheduler skips.
    """
    kind = load().pods["basic"]
    manifest = pod(kind, "pod-NUMBER", "default", 0, "default-scheduler", node="node-ROW", full_size=full_size)
    metadata = manifest["metadata"]
    metadata["labels"] |= {"app": "app-OWNER", "pod-template-hash": "5d4f8c7b9"}
    if unique_labels:
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = "pod-NUMBER"
    metadata["ownerReferences"] = [owner]
    # Small enough for as many on a node as it may hold at all.
    small = {"cpu": "20m", "memory": "50Mi"}
    manifest["spec"]["containers"][0]["resources"] = {"requests": small, "limits": small}
    if stored:
        metadata["uid"] = "7b5ab1a6-0000-4000-8000-NUMBER"
        metadata["resourceVersion"] = "NUMBER"
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1"}
    template = orjson.dumps(manifest)
    names = [name.encode() for name in nodes]
    for number in range(count):
        text = template.replace(b"NUMBER", b"%d" % number).replace(b"OWNER", b"%d" % (number // REPLICAS))
        yield text.replace(b"node-ROW", names[number % len(names)])
