"""CustomResourceDefinitions: what is applied is served at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema.exceptions import SchemaError

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.errors import ApiStatusError, FieldError, invalid_value, not_supported, required
from koordsched.fakecluster.jsonpath import JsonPathError, compile_path
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import FieldReader, Resource
from koordsched.fakecluster.scale import ScalePaths
from koordsched.fakecluster.strategy import Strategy
from koordsched.fakecluster.structural import Validator, fill_defaults, prune
from koordsched.fakecluster.table import AGE, NAME, Cell, Column, since

Object = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"


@dataclass(slots=True)
class Version:
    """One version of a custom kind."""

    schema: dict[str, Any]
    validator: Validator
    columns: Sequence[Column]
    scale: ScalePaths | None
    status: bool
    """Whether the status is a subresource."""


class CustomStrategy(Strategy):
    """The objects of one CustomResourceDefinition, in the version that a request speaks."""

    counts_generations = True
    unconditional_update = False

    def __init__(self, version: Version, stored: Version) -> None:
        self._version = version
        self._stored = stored

    def prune(self, resource: Resource, obj: Object) -> list[str]:
        return _pruned(obj, self._version.schema)

    def defaults(self, obj: Object) -> None:
        fill_defaults(obj, self._version.schema)

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        if self._version.status:
            obj.pop("status", None)

    def validate(self, obj: Object) -> list[FieldError]:
        return self._version.validator.errors(obj)

    def fit_storage(self, obj: Object) -> None:
        _pruned(obj, self._stored.schema)
        # The real server fills them when it reads what it stored.
        fill_defaults(obj, self._stored.schema)

    def schema(self, resource: Resource) -> dict[str, Any]:
        return self._version.schema

    def scale_paths(self, resource: Resource) -> ScalePaths | None:
        return self._version.scale

    def columns(self, resource: Resource) -> Sequence[Column]:
        return self._version.columns


class CrdStrategy(Strategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition; serves what the stored definitions define."""

    counts_generations = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        definitions = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        registry.subscribe_changes(definitions, self._changed)

    def defaults(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")
        spec.setdefault("conversion", {"strategy": "None"})

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        now = rfc3339(registry.clock.now())
        spec = obj["spec"]
        accepted = {
            "lastTransitionTime": now,
            "message": "no conflicts found",
            "reason": "NoConflicts",
            "status": "True",
            "type": "NamesAccepted",
        }
        established = {
            "lastTransitionTime": now,
            "message": "the initial names have been accepted",
            "reason": "InitialNamesAccepted",
            "status": "True",
            "type": "Established",
        }
        obj["status"] = {
            "acceptedNames": spec["names"],
            "conditions": [accepted, established],
            "storedVersions": [v.get("name") for v in spec.get("versions") or () if v.get("storage")],
        }

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        if subresource:
            return
        status = dict(old.get("status") or {})
        stored = list(status.get("storedVersions") or ())
        stored += [
            v["name"] for v in obj["spec"].get("versions") or () if v.get("storage") and v.get("name") not in stored
        ]
        obj["status"] = {**status, "storedVersions": stored, "acceptedNames": obj["spec"]["names"]}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        names, versions = spec["names"], spec.get("versions") or ()
        wrong: list[FieldError] = []
        wrong += [required(f"spec.names.{key}") for key in ("plural", "kind") if not names.get(key)]
        if not spec.get("group"):
            wrong.append(required("spec.group"))
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            wrong.append(not_supported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
        expected = f"{names.get('plural')}.{spec.get('group')}"
        if obj["metadata"].get("name") != expected:
            wrong.append(
                invalid_value("metadata.name", obj["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group')
            )
        if sum(bool(v.get("storage")) for v in versions) != 1:
            wrong.append(
                invalid_value("spec.versions", None, "must have exactly one version marked as storage version")
            )
        for i, version in enumerate(versions):
            wrong += _version_errors(version, f"spec.versions[{i}]")
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        spec, before = obj["spec"], old.get("spec") or {}
        return [
            invalid_value(f"spec.{key}", spec.get(key), "field is immutable")
            for key in ("group", "scope")
            if spec.get(key) != before.get(key)
        ]

    # -- serving

    def _changed(self, change: ChangeView) -> None:
        old = change.old
        if change.type == "DELETED":
            self._remove(change.new)
            return
        if old is not None and old.get("spec") == change.new.get("spec"):
            return
        self._serve(change.new, old)

    def _serve(self, definition: Object, old: Object | None) -> None:
        registry, spec = self._registry, definition["spec"]
        group, names = spec["group"], spec["names"]
        storage = f"{group}/{names['plural']}"
        stored = next(v for v in spec["versions"] if v.get("storage"))
        served = {v["name"]: v for v in spec["versions"] if v.get("served") or v.get("storage")}
        versions = {name: _version(v) for name, v in served.items()}
        if old is not None:
            for version in old["spec"]["versions"]:
                self._withdraw(group, version["name"], old["spec"]["names"]["plural"])
        for name, version in sorted(served.items()):
            if not version.get("served"):
                continue
            rules = f"{storage}/{name}"
            registry.strategies[rules] = CustomStrategy(versions[name], versions[stored["name"]])
            own = versions[name].schema
            resource = Resource(
                group=group,
                version=name,
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names.get("singular", ""),
                list_kind=names.get("listKind", ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=frozenset(version.get("subresources") or ()),
                storage=storage,
                rules=rules,
                storage_version=f"{group}/{stored['name']}",
                to_storage=_renamed(f"{group}/{stored['name']}", {}),
                from_storage=_renamed(f"{group}/{name}", own),
                fields=tuple(
                    (_dotted(f["jsonPath"]), _reader(f["jsonPath"])) for f in version.get("selectableFields") or ()
                ),
                custom=True,
            )
            registry.serve(resource)
        # Like the real server, whose handler of custom resources creates a new storage for every spec: the streams of
        # the old one end, and the watch cache of the new one has no history.
        registry.store.collection(storage).begin_anew(registry.store.rv)

    def _withdraw(self, group: str, version: str, plural: str) -> None:
        found = self._registry.find(group, version, plural)
        if found is not None and found.custom:
            self._registry.withdraw(found)
            self._registry.strategies.pop(found.rules, None)

    def _remove(self, definition: Object) -> None:
        """The definition is gone: so are its objects, then the resource."""
        registry, spec = self._registry, definition["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        served = [registry.find(group, v["name"], plural) for v in spec["versions"]]
        resources = [r for r in served if r is not None]
        for resource in resources[:1]:
            for record in list(registry.scan(resource)):
                try:
                    registry.delete_record(resource, record.namespace, record.name)
                except ApiStatusError as refusal:
                    if refusal.code != 404:
                        raise
        for resource in resources:
            self._withdraw(group, resource.version, plural)
        registry.store.drop(f"{group}/{plural}")


def _version_errors(version: Object, field: str) -> list[FieldError]:
    wrong: list[FieldError] = []
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        wrong.append(required(f"{field}.schema.openAPIV3Schema", "schemas are required"))
    else:
        try:
            Validator(schema)
        except SchemaError as problem:
            wrong.append(invalid_value(f"{field}.schema.openAPIV3Schema", None, problem.message))
    for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            compile_path(str(column.get("jsonPath") or ""))
        except JsonPathError as problem:
            wrong.append(
                invalid_value(f"{field}.additionalPrinterColumns[{i}].jsonPath", column.get("jsonPath"), str(problem))
            )
    return wrong


def _version(version: Object) -> Version:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    declared = version.get("additionalPrinterColumns") or ()
    columns = (NAME, *(_column(c) for c in declared)) if declared else (NAME, AGE)
    return Version(
        schema, Validator(schema), columns, ScalePaths.declared(scale) if scale else None, "status" in subresources
    )


def _pruned(obj: Object, schema: dict[str, Any]) -> list[str]:
    return prune(obj, schema) if schema and not schema.get(_PRESERVE) else []


def _renamed(api_version: str, schema: dict[str, Any]) -> Callable[[Object], Object]:
    """The only conversion without a webhook: the same object under another apiVersion, without what `schema` lacks."""

    def convert(obj: Object) -> Object:
        _pruned(obj, schema)
        return {**obj, "apiVersion": api_version}

    return convert


def _dotted(path: str) -> str:
    return path.removeprefix(".")


def _reader(path: str) -> FieldReader:
    read = compile_path(path)

    def text(obj: Object) -> str:
        values = read(obj)
        if not values:
            return ""
        return str(values[0]).lower() if isinstance(values[0], bool) else str(values[0])

    return text


def _column(declared: Object) -> Column:
    read, kind = compile_path(str(declared["jsonPath"])), str(declared.get("type") or "string")
    return Column(
        str(declared["name"]),
        _cell(read, kind),
        type=kind,
        priority=int(declared.get("priority") or 0),
        format=str(declared.get("format") or ""),
        description=str(declared.get("description") or ""),
    )


def _cell(read: Any, kind: str) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        values = read(obj)
        if not values:
            return None
        value = values[0]
        if kind == "date":
            return since(value, now)
        if kind == "integer":
            return int(value) if isinstance(value, int | float) else None
        if kind == "string" and not isinstance(value, str):
            import orjson

            return orjson.dumps(value).decode()
        return value

    return cell
