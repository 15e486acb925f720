"""How CPUs are chosen for a pod (nodenumaresource spec 2.3, 2.4). A text that is none of them means the first."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class _Policy(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        return next(iter(cls))


class BindPolicy(_Policy):
    """Which CPUs of a core a pod gets. `Default` is none of them: it means what the arguments of the plugin say."""

    NONE = ""
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ExclusivePolicy(_Policy):
    """What a pod prefers not to share with pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class AllocateStrategy(_Policy):
    """Which NUMA nodes come first: those with the most CPUs available, or those with the fewest."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
