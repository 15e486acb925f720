"""Makes `fields.json` from the generated.proto files that Kubernetes publishes (k8s.io/api, k8s.io/apimachinery).

    python koordsched/fakecluster/data/reduce_protobuf.py DIRECTORY > koordsched/api/protobuf/fields.json

Per message, under the name of its OpenAPI definition: [[field number, JSON name, type, form]...]. The type is a scalar
or the name of a message; the form is "" (one value), "list", "map" (of that type, by string) or "inline" (the message's
fields stand in this one, as embedded Go structs do in JSON).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import orjson

from koordsched.fakecluster.schemas import definitions

_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(
    r"^\s*(optional|repeated|map)\s*(?:<string,\s*([\w.]+)>)?\s*([\w.]+)?\s+(\w+)\s*=\s*(\d+)", re.MULTILINE
)
_SCALARS = {"string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double"}


def definition(package: str, name: str) -> str:
    """The OpenAPI name of a message (`k8s.io.api.core.v1`, `Pod`)."""
    return f"io.k8s.{package.removeprefix('k8s.io.')}.{name}"


def as_json(
    fields: list[list[object]], properties: dict[str, object], messages: dict[str, list[list[object]]]
) -> list[list[object]]:
    """The fields that the OpenAPI definition knows, under its names; embedded messages marked as inline."""
    if not properties:
        return fields
    by_lower = {name.lower(): name for name in properties}
    out: list[list[object]] = []
    for number, field, kind, form in fields:
        name = by_lower.get(str(field).lower())
        if name is not None:
            out.append([number, name, kind, form])
        elif not form and any(f[1] in properties for f in messages.get(str(kind), ())):
            out.append([number, field, kind, "inline"])
    return out


def main(directory: str) -> None:
    messages: dict[str, list[list[object]]] = {}
    for path in sorted(Path(directory).iterdir()):
        text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        if package is None:
            continue
        for name, body in _MESSAGE.findall(text):
            own = definition(package[1], name)
            fields: list[list[object]] = []
            for label, of, plain, field, number in _FIELD.findall(body):
                kind = of or plain
                if kind not in _SCALARS:
                    home, _, short = kind.lstrip(".").rpartition(".")
                    kind = definition(home or package[1], short)
                form = {"repeated": "list", "map": "map"}.get(label, "")
                fields.append([int(number), field, kind, form])
            messages[own] = fields
    kept: dict[str, list[list[object]]] = {}
    waiting = [name for name in definitions() if name in messages]
    while waiting:
        name = waiting.pop()
        if name not in kept and name in messages:
            kept[name] = as_json(messages[name], definitions().get(name, {}).get("properties", {}), messages)
            waiting.extend(str(f[2]) for f in kept[name])
    sys.stdout.buffer.write(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS))


if __name__ == "__main__":
    main(sys.argv[1])
