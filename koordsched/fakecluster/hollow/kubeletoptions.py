"""The parts of a kubelet's configuration that concern CPUs and NUMA nodes."""

from __future__ import annotations

from typing import Literal

import msgspec

from koordsched.fakecluster.hollow.cpuset import parse_cpuset

_POLICIES = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}


class KubeletOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """`kubelet` of a node template: fields of KubeletConfiguration. Raises ValueError for a CPU set that is none."""

    cpu_manager_policy: Literal["none", "static"] = "none"
    cpu_manager_policy_options: dict[str, str] = {}
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    """Taken off what is allocatable; the static policy leaves them to pods without CPUs of their own."""
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    topology_manager_scope: Literal["container", "pod"] = "container"

    def __post_init__(self) -> None:
        try:
            reserved = self.reserved
        except ValueError as error:
            raise ValueError(f"reservedSystemCPUs: {error}") from None
        if self.static and not reserved:
            # A kubelet without them does not start.
            raise ValueError("reservedSystemCPUs: the static policy needs at least one")

    @property
    def reserved(self) -> frozenset[int]:
        """The reserved CPUs."""
        return parse_cpuset(self.reserved_system_cpus)

    @property
    def static(self) -> bool:
        """Whether Guaranteed pods get CPUs of their own."""
        return self.cpu_manager_policy == "static"

    @property
    def full_cores_only(self) -> bool:
        """Whether these have to be whole cores."""
        return self.static and self.cpu_manager_policy_options.get("full-pcpus-only") == "true"

    @property
    def topology_policy(self) -> str:
        """Policy and scope in the one name that a NodeResourceTopology has for them."""
        policy = _POLICIES.get(self.topology_manager_policy)
        return f"{policy}{self.topology_manager_scope.title()}Level" if policy else "None"
