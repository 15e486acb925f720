"""The field numbers of Kubernetes' protobuf messages.

`fields.json` is made of the published .proto files by `koordsched/fakecluster/data/reduce_protobuf.py`.
"""

from __future__ import annotations

from functools import cache
from importlib import resources as package_files
from typing import NamedTuple

import orjson

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
TIME = META + "Time"
MICRO_TIME = META + "MicroTime"
FIELDS_V1 = META + "FieldsV1"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
"""What an enveloped message begins with; after it comes `pkg/runtime/generated.proto` Unknown."""


class Field(NamedTuple):
    """A field of a message.

    `name` is its name in JSON; `kind` a scalar (string, int64, ...) or the definition of a message; `form` is "" (one
    value), "list", "map" (of that kind, by string) or "inline" (its fields stand in this message, in JSON).
    """

    number: int
    name: str
    kind: str
    form: str


@cache
def messages() -> dict[str, tuple[Field, ...]]:
    """The fields of every message, by OpenAPI definition (`io.k8s.api.core.v1.Pod`)."""
    text = package_files.files(__package__).joinpath("fields.json").read_bytes()
    return {definition: tuple(Field(*field) for field in fields) for definition, fields in orjson.loads(text).items()}


def definition_of(api: str, kind: str) -> str:
    """The definition of a kind served at this path (`api/v1`, `apis/apps/v1`); "" if it has no protobuf form.

    API servers have protobuf for built-in kinds alone: what CustomResourceDefinitions add comes as JSON.
    """
    *group, version = api.removeprefix("apis/").removeprefix("api/").split("/")
    package = group[0].partition(".")[0] if group else "core"
    found = f"io.k8s.api.{package}.{version}.{kind}"
    is_built_in = not group or "." not in group[0] or group[0].endswith(".k8s.io")
    return found if is_built_in and found in messages() else ""
