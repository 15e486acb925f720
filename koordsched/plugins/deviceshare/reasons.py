"""Why nodes are refused (deviceshare spec 3): texts that users read, upstream's to the letter."""

from __future__ import annotations

from typing import NamedTuple

from koordsched.framework.status import Code

NO_TEMPLATE = "no matched GPU shared resource template"
ISOLATION = "GPUIsolationProviderHAMICore not found on the node"


class Refusal(NamedTuple):
    """A verdict with its texts."""

    code: Code
    texts: tuple[str, ...]

    @classmethod
    def unschedulable(cls, *texts: str) -> Refusal:
        """Fewer pods on the node may help."""
        return cls(Code.UNSCHEDULABLE, texts)

    @classmethod
    def unresolvable(cls, *texts: str) -> Refusal:
        """They may not."""
        return cls(Code.UNRESOLVABLE, texts)


INSUFFICIENT_GPUS = Refusal.unschedulable("Insufficient GPU Devices")
INSUFFICIENT_SCOPED_GPUS = Refusal.unschedulable("Insufficient Topology Scoped GPU Devices")
INSUFFICIENT_PARTITIONED_GPUS = Refusal.unschedulable("Insufficient Partitioned GPU Devices")
INSUFFICIENT_PRIMARY = Refusal.unschedulable("node(s) Insufficient primary device")
NOT_JOINT = Refusal.unschedulable("node(s) Device Joint-Allocate rules violation")
NO_PARTITIONS = Refusal.unresolvable("node(s) missing GPU Partition Table")
UNSUPPORTED_NUMBER = Refusal.unresolvable("node(s) Unsupported number of GPU requests")
NO_SCOPES = Refusal.unresolvable("node(s) missing GPU Device Topology Tree")
UNSUPPORTED_SHARED = Refusal.unresolvable("node(s) Unsupported Multi-Shared GPU")
NO_MATCHED_TEMPLATE = Refusal.unresolvable(NO_TEMPLATE)
INSUFFICIENT_IN_NUMA_NODES = Refusal.unresolvable("Insufficient NUMA Scoped Devices")
DESIGNATED_WITHOUT_NUMA_NODE = Refusal.unschedulable("Designated Allocation Lack NUMA Node ID")
NOT_ISOLATED = Refusal(Code.ERROR, (ISOLATION,))
NOT_ISOLATED_HERE = Refusal.unschedulable(ISOLATION)


def insufficient(kind: str) -> Refusal:
    """Too few devices of a type are free."""
    return Refusal.unschedulable(f"Insufficient {kind} devices")


def none_known(kind: str) -> Refusal:
    """The node has no devices of a type."""
    return Refusal.unresolvable(f"Insufficient {kind} devices")


def no_functions(kind: str) -> Refusal:
    """No device of a type has virtual functions."""
    return Refusal.unresolvable(f"Insufficient {kind} VirtualFunctions")


def cannot_share(model: str, vendor: str) -> Refusal:
    """The GPUs of a model are given out as a whole only."""
    return Refusal.unresolvable(f'model "{model}" of vendor "{vendor}" does not support GPU Share')
