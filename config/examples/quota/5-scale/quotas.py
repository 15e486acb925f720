"""Prints 1,000 quotas in five levels, for `kubectl apply -f -`: 4, 12, 48, 186 and 750, each below one of the last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PREFIX = "quota.scheduling.koordinator.sh/"
LEVELS = (4, 12, 48, 186, 750)
CPUS = 10_000
"""Guaranteed to each level together, evenly; half as much again is the most that any quota may use."""


def quotas() -> Iterator[dict[str, Any]]:
    """The objects, parents first."""
    above = [""]
    for level, count in enumerate(LEVELS):
        names = [f"level-{level}-{number}" for number in range(count)]
        for number, name in enumerate(names):
            yield quota(name, above[number % len(above)], CPUS * 1000 // count, is_parent=level + 1 < len(LEVELS))
        above = names


def quota(name: str, parent: str, milli: int, *, is_parent: bool) -> dict[str, Any]:
    """One of them."""
    labels = {PREFIX + "parent": parent, PREFIX + "is-parent": str(is_parent).lower()}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "min": {"cpu": f"{milli}m", "memory": f"{4 * milli}Mi"},
            "max": {"cpu": f"{CPUS * 3 // 2}", "memory": f"{CPUS * 6}Gi"},
        },
    }


if __name__ == "__main__":
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(quotas())}))
