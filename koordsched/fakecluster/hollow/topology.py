"""The annotation `koordsched.io/topology` of a node: its CPUs and NUMA nodes, as JSON.

{"cpus": {"sockets": 2, "coresPerNumaNode": 26}, "kubelet": {"topologyManagerPolicy": "restricted"}}
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.cpulayout import CpuLayout
from koordsched.fakecluster.hollow.cpuset import format_cpuset
from koordsched.fakecluster.hollow.kubeletoptions import KubeletOptions

TOPOLOGY = "koordsched.io/topology"
_LONGEST_TEXT = 65536


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """CPUs, and the kubelet's policies for them. Raises ValueError when the two do not fit."""

    cpus: CpuLayout
    kubelet: KubeletOptions = KubeletOptions()

    def __post_init__(self) -> None:
        beyond = [cpu for cpu in self.kubelet.reserved if cpu >= self.cpus.count]
        if beyond:
            raise ValueError(f"kubelet.reservedSystemCPUs: there is no CPU {format_cpuset(beyond)}")

    @property
    def whole_cores(self) -> int:
        """Of how many CPUs a container of a Guaranteed pod must request a multiple; 0 if of none."""
        return self.cpus.threads_per_core if self.kubelet.full_cores_only else 0


@lru_cache(maxsize=64)
def read_topology(text: str) -> Topology:
    """Decodes the annotation. Raises ValueError."""
    return decode_text(text, Topology, _LONGEST_TEXT)
