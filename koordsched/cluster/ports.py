"""Host ports in use, sparse: few nodes use any, and users choose the numbers.

Source: default-plugins spec 3.5, upstream `framework/types.go` HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from koordsched.api.core import PodSpec
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.shape import PodShape

WILDCARD = "0.0.0.0"

HostPort = tuple[str, str, int]
"""(ip, protocol, port); an unset ip is WILDCARD, an unset protocol TCP."""


def host_ports_of(spec: PodSpec) -> tuple[HostPort, ...]:
    """The distinct host ports of containers and sidecars."""
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    return tuple(
        dict.fromkeys(
            (port.host_ip or WILDCARD, port.protocol or "TCP", port.host_port)
            for container in (*spec.containers, *sidecars)
            for port in container.ports
            if port.host_port > 0
        )
    )


def _compile(shape: PodShape) -> tuple[HostPort, ...]:
    return host_ports_of(shape.spec)


def shape_ports(shape: PodShape) -> tuple[HostPort, ...]:
    """The host ports of a shape, computed once."""
    return shape.compiled(host_ports_of, _compile)


def overlap(some: Iterable[HostPort], others: Sequence[HostPort]) -> bool:
    """Whether two pods with these host ports cannot be on one node."""
    return any(
        (protocol, port) == (other_protocol, other_port) and (ip == other_ip or WILDCARD in (ip, other_ip))
        for ip, protocol, port in some
        for other_ip, other_protocol, other_port in others
    )


class HostPorts:
    """Per (protocol, port) and ip, the rows where it is taken and by how many pods.

    Two pods with the same port on one node cannot be scheduled there by us, but others can put them there,
    so uses are counted.
    """

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], dict[str, dict[int, int]]] = {}

    def add(self, row: int, ports: Iterable[HostPort], sign: int = 1) -> None:
        """Takes (`sign` 1) or releases (-1) ports on a row."""
        for ip, protocol, port in ports:
            by_ip = self._used.setdefault((protocol, port), {})
            rows = by_ip.setdefault(ip, {})
            count = rows.get(row, 0) + sign
            if count:
                rows[row] = count
                continue
            del rows[row]
            if not rows:
                del by_ip[ip]
                if not by_ip:
                    del self._used[(protocol, port)]

    def conflicts(self, ports: Sequence[HostPort]) -> list[dict[int, int]]:
        """The row sets (keys of the dicts) on which one of the ports is not free."""
        found: list[dict[int, int]] = []
        for ip, protocol, port in ports:
            by_ip = self._used.get((protocol, port))
            if by_ip is None:
                continue
            if ip == WILDCARD:
                found.extend(by_ip.values())
            else:
                found.extend(by_ip[taken] for taken in (ip, WILDCARD) if taken in by_ip)
        return found

    def claimed(self, row: int, protocol: str, port: int) -> int:
        """The most pods that claim one address of this port on a row; a claim on all addresses is one on each."""
        by_ip = self._used.get((protocol, port), {})
        everywhere = by_ip.get(WILDCARD, {}).get(row, 0)
        return everywhere + max((rows.get(row, 0) for ip, rows in by_ip.items() if ip != WILDCARD), default=0)


def rows_in(sets: Sequence[dict[int, int]]) -> RowArray:
    """The union of row sets as an array."""
    union: set[int] = set().union(*sets)
    return np.fromiter(union, dtype=np.intp, count=len(union))
