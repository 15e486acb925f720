"""Node templates: a YAML file that says what the nodes of a hollow cluster have.

templates:
  - nodeName: gpu-${zone}-${index}   # ${zone}, ${index} and, elsewhere, ${node} are filled in
    weight: 6                        # share of the nodes asked for; or `count`, an exact number
    zones: [zone-a, zone-b]          # topology.kubernetes.io/zone, in turns
    region: region-1
    labels: {...}
    annotations: {...}
    taints: [{key: ..., effect: NoSchedule}]
    capacity: {cpu: 64, memory: 256Gi, pods: 110, example.com/gpu: 8}
    allocatable: {...}               # where it differs from the capacity
    images: [{names: [...], sizeBytes: 1000}]
    csiDrivers: [{name: ..., topologyKeys: [...], allocatable: {count: 25}}]
    cpus: {sockets: 2, numaNodesPerSocket: 1, coresPerNumaNode: 26, threadsPerCore: 2, numbering: linux}
                                     # CPUs of which the nodes report NodeResourceTopologies, if that kind is installed
                                     # (topologyreports.py); capacity.cpu is their number unless stated (cpulayout.py)
    kubelet: {cpuManagerPolicy: static, reservedSystemCPUs: "0-1"}   # as in KubeletConfiguration (kubeletoptions.py)
    devices: {model: T4, groups: [{type: gpu, count: 2, memory: 16Gi}]}
                                     # GPUs, RDMA NICs and FPGAs that the nodes report as Devices, if that kind is
                                     # installed (devicelayout.py, devicereports.py)
    drivers: [{name: gpu.example.com, devices: [{name: gpu, count: 8, attributes: {model: H100}}]}]
                                     # devices for dynamic resource allocation, which the nodes publish in
                                     # ResourceSlices (driverlayout.py, slicepublisher.py)
    usage:                           # what the nodes report as NodeMetrics, if that kind is installed (loadreports.py)
      system: {cpu: 200m, memory: 1Gi}   # of all but pods, in the forms of usage.py; nothing unless stated
      share: {cpu: 60, memory: 80}   # of pods that state no usage, in percent of what they request
      reportInterval: 60s
      history: 10m                   # as if measured for so long when the node appears: it reports at once
    faults: {startError: CreateContainerError}   # no pod starts there; FailedCreatePodSandBox: not even its sandbox
    objects: [...]                   # manifests made with each node, e.g. its NodeResourceTopology or Device
pools:                               # devices that are attached to no node, likewise
  - {name: fabric, driver: nic.example.com, nodeSelector: {rack: r1}, devices: [{name: nic, count: 4}]}
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koordsched.api import quantity
from koordsched.fakecluster.hollow.cpulayout import CpuLayout
from koordsched.fakecluster.hollow.devicelayout import DeviceLayout
from koordsched.fakecluster.hollow.driverlayout import DriverLayout, PoolLayout, read_drivers
from koordsched.fakecluster.hollow.kubeletoptions import KubeletOptions
from koordsched.fakecluster.hollow.resourcepools import Pool, PoolId, attached_pool, node_pools
from koordsched.fakecluster.hollow.topology import Topology
from koordsched.fakecluster.hollow.usage import NodeUsage


class TemplateError(ValueError):
    """The templates cannot be used; the message names the file and the place in it."""


class Taint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """core/v1 Taint."""

    key: str
    effect: str
    value: str = ""


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """core/v1 ContainerImage."""

    names: list[str]
    size_bytes: int = 0


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is wrong with the nodes. `start_error`: the reason why containers wait instead of starting."""

    start_error: str = ""


class NodeTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One kind of node."""

    capacity: dict[str, str | int | float]
    node_name: str = "node-${index}"
    count: int | None = None
    weight: int | None = None
    zones: list[str] = []
    region: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[Taint] = []
    allocatable: dict[str, str | int | float] = {}
    images: list[Image] = []
    csi_drivers: list[dict[str, Any]] = []
    cpus: CpuLayout | None = None
    kubelet: KubeletOptions | None = None
    devices: DeviceLayout | None = None
    drivers: list[DriverLayout] = []
    usage: NodeUsage | None = None
    faults: Faults = Faults()
    objects: list[dict[str, Any]] = []

    def __post_init__(self) -> None:
        if self.kubelet is not None and self.topology() is None:
            raise ValueError("kubelet: needs cpus")

    def topology(self) -> Topology | None:
        """The CPUs, and what the kubelet does with them. Raises ValueError when the two do not fit."""
        return Topology(self.cpus, self.kubelet or KubeletOptions()) if self.cpus is not None else None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    templates: list[NodeTemplate]
    pools: list[PoolLayout] = []


DEFAULT: Mapping[str, Any] = {
    "templates": [
        {
            "nodeName": "node-${index}",
            "weight": 1,
            "zones": ["zone-a", "zone-b", "zone-c"],
            "capacity": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"},
        }
    ]
}


def load_templates(source: Path | str | Mapping[str, Any] | None) -> list[NodeTemplate]:
    """Reads and checks templates from a file or its decoded content. Raises TemplateError."""
    content, name = _read(source)
    return _checked(_decode(content, name).templates, name)


def load_pools(source: Path | str | Mapping[str, Any] | None) -> list[Pool]:
    """Reads the pools of devices that are attached to no node, likewise. Raises TemplateError."""
    content, name = _read(source)
    found: dict[PoolId, Pool] = {}
    for number, layout in enumerate(_decode(content, name).pools):
        try:
            pool = attached_pool(layout)
        except ValueError as error:
            raise TemplateError(f"{name}: pools[{number}]: {error}") from error
        if pool.id in found:
            raise TemplateError(f"{name}: pools[{number}]: there is another one of this driver and name")
        found[pool.id] = pool
    return list(found.values())


def _read(source: Path | str | Mapping[str, Any] | None) -> tuple[Any, str]:
    """The decoded content and what to call it."""
    if source is None:
        source = DEFAULT
    if isinstance(source, Mapping):
        return source, "node template"
    try:
        content = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise TemplateError(f"{source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"{source}: not UTF-8 text: {error.reason}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise TemplateError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    return content, str(source)


def _decode(content: Any, name: str) -> _File:
    try:
        return msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise TemplateError(f"{name}: {error}") from error


def _checked(templates: list[NodeTemplate], name: str) -> list[NodeTemplate]:
    if not templates:
        raise TemplateError(f"{name}: templates: at least one is needed")
    for number, template in enumerate(templates):
        where = f"{name}: templates[{number}]"
        for field in ("capacity", "allocatable"):
            for resource, text in getattr(template, field).items():
                try:
                    if quantity.parse(text) < 0:
                        raise TemplateError(f"{where}.{field}.{resource}: {text!r} must not be negative")
                except quantity.QuantityError as error:
                    raise TemplateError(f"{where}.{field}.{resource}: {error}") from error
        if template.count is not None and template.weight is not None:
            raise TemplateError(f"{where}: count and weight exclude each other")
        if (template.count or 0) < 0 or (template.weight or 0) < 0:
            raise TemplateError(f"{where}: count and weight must not be negative")
        for key in string.Template(template.node_name).get_identifiers():
            if key not in ("index", "zone"):
                raise TemplateError(f"{where}.nodeName: ${{{key}}} is not known, only ${{index}} and ${{zone}} are")
        try:
            node_pools(read_drivers(drivers_text(template, _ANY_NODE)), _ANY_NODE["node"])
        except ValueError as error:
            raise TemplateError(f"{where}.drivers: {error}") from error
        for index, obj in enumerate(template.objects):
            if not obj.get("apiVersion") or not obj.get("kind"):
                raise TemplateError(f"{where}.objects[{index}]: apiVersion and kind are needed")
    return templates


def share_out(templates: list[NodeTemplate], total: int | None) -> list[int]:
    """How many nodes each template gets: its count, or its share, by weight, of what the counts leave of `total`.

    A template with neither has weight 1. Raises TemplateError when the numbers do not add up.
    """
    counts = [template.count for template in templates]
    stated = sum(count or 0 for count in counts)
    weights = [0 if t.count is not None else 1 if t.weight is None else t.weight for t in templates]
    if total is None:
        if any(count is None for count in counts):
            raise TemplateError("the number of nodes is needed: not every template states a count")
        return [count or 0 for count in counts]
    rest = total - stated
    if rest < 0:
        raise TemplateError(f"{total} nodes are fewer than the {stated} that the templates count")
    if rest and not sum(weights):
        raise TemplateError(f"{total} nodes are more than the {stated} that the templates count, and none has a weight")
    shares = [count or 0 for count in counts]
    if not rest:
        return shares
    exact = [rest * weight / sum(weights) for weight in weights]
    whole = [int(part) for part in exact]
    # Largest remainders first, so that the shares add up.
    by_remainder = sorted(range(len(templates)), key=lambda i: (whole[i] - exact[i], i))
    for i in by_remainder[: rest - sum(whole)]:
        whole[i] += 1
    return [count + part for count, part in zip(shares, whole, strict=True)]


_ANY_NODE = {"node": "node-0", "zone": "zone", "index": "0"}


def drivers_text(template: NodeTemplate, names: Mapping[str, str]) -> str:
    """The annotation that says which drivers a node of the template has."""
    return msgspec.json.encode(fill_in(msgspec.to_builtins(template.drivers), names)).decode()


def fill_in(value: Any, names: Mapping[str, str]) -> Any:
    """A copy of a JSON value with `${name}` filled in everywhere; unknown names stay as they are."""
    if isinstance(value, str):
        return string.Template(value).safe_substitute(names) if "$" in value else value
    if isinstance(value, dict):
        return {fill_in(key, names): fill_in(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_in(item, names) for item in value]
    return value
