"""Which pod of a cluster is the koordsched that leads, by its lease, and at which port it serves."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeVar

import msgspec

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.cli.objectfiles import InputError
from koordsched.client.errors import ClientError, NotFound, raise_for_status
from koordsched.client.transport import Transport

LEASES = ("koordsched-system/koordsched", "kube-system/kube-scheduler", "kube-system/koord-scheduler")
"""Where the lease may be: as in the manifests, or when koordsched replaces another scheduler."""

LABEL = "app.kubernetes.io/name=koordsched"
"""Pods of the manifests."""

DEFAULT_PORT = 10259

T = TypeVar("T")

_LONGEST_HOST_NAME = 63
"""Longer names are cut when a pod's name becomes its host name."""

_SECURE_PORT = re.compile(r"--secure-port=(\d+)")


class SchedulerPod(NamedTuple):
    """Where a scheduler runs."""

    namespace: str
    name: str
    port: int


class _Port(msgspec.Struct, rename="camel"):
    container_port: int
    name: str = ""


class _Container(msgspec.Struct):
    args: list[str] = []
    command: list[str] = []
    ports: list[_Port] = []


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] = []
    host_network: bool = False
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


async def find_leader(transport: Transport, lease: str | None) -> SchedulerPod:
    """The pod that holds the lease `namespace/name`, or one of LEASES. Raises InputError if there is none.

    A single replica needs no lease: without one it is the only pod that runs in the namespace of the manifests.
    """
    failures = []
    for one in (lease,) if lease else LEASES:
        try:
            return await _holder(transport, one, any_pod=lease is not None)
        except (ClientError, InputError) as error:
            failures.append(f"{one}: {error}")
    raise InputError(f"no running koordsched was found by its lease ({'; '.join(failures)})")


async def _holder(transport: Transport, lease: str, *, any_pod: bool) -> SchedulerPod:
    namespace, _, name = lease.partition("/")
    if not (namespace and name):
        raise InputError("a lease must be given as NAMESPACE/NAME")
    holder: str | None = None
    try:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        holder = (await _get(transport, path, {}, _Lease)).spec.holder_identity
    except NotFound:
        if lease != LEASES[0]:
            raise
    else:
        if not holder:
            raise InputError("it has no holder now")
    # When it replaces another scheduler, its lease is in the namespace of that one.
    namespaces = [namespace] if any_pod else list(dict.fromkeys((LEASES[0].partition("/")[0], namespace)))
    selector = {} if any_pod else {"labelSelector": LABEL}
    found: list[SchedulerPod] = []
    for one in namespaces:
        pods = (await _get(transport, f"/api/v1/namespaces/{one}/pods", selector, _Pods)).items or []
        running = [pod for pod in pods if pod.status.phase == "Running" and _may_hold(pod, holder)]
        found = [SchedulerPod(one, pod.metadata.name, _port(pod)) for pod in running]
        if found:
            break
    if len(found) != 1:
        why = f"its holder is {holder}" if holder is not None else "there is no such lease"
        kind = "" if any_pod else f" labelled {LABEL}"
        where = " and ".join(namespaces)
        raise InputError(f"{why}, and {len(found)} running pods{kind} in {where} could be the leader")
    return found[0]


def _may_hold(pod: _Pod, holder: str | None) -> bool:
    """Whether the pod sees the name of the host that is in the identity of the holder; any may if there is none."""
    if holder is None:
        return True
    host = holder.rpartition("_")[0] or holder
    if pod.spec.host_network:
        return pod.spec.node_name == host
    return pod.metadata.name[:_LONGEST_HOST_NAME].rstrip("-.") == host


def _port(pod: _Pod) -> int:
    for container in pod.spec.containers:
        for port in container.ports:
            if port.name == "https":
                return port.container_port
        for argument in (*container.command, *container.args):
            if match := _SECURE_PORT.fullmatch(argument):
                return int(match[1])
    return DEFAULT_PORT


async def _get(transport: Transport, path: str, query: dict[str, str], kind: type[T]) -> T:
    body = raise_for_status(await transport.request("GET", path, query=query)).body
    try:
        return Decoder(kind)(body)
    except DecodeError as error:
        raise InputError(f"{path}: {error}") from error
