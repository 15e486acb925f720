"""Text of a configuration file -> a tree of plain values, read as `sigs.k8s.io/yaml` and `sigs.k8s.io/json` read it.

YAML is a way of writing JSON here: keys are strings, plain scalars follow YAML 1.1 as goyaml resolves it (`yes` is
true, `1:30` and dates are strings), only the first document counts. Repeated keys are remembered, not dropped.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import orjson
import yaml

from koordsched.config.errors import ConfigError

Value: TypeAlias = Any  # None, bool, int, float, str, list of values, Object

MAX_DEPTH = 100
MAX_NODES = 200_000  # after expanding aliases

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_JSON = {".inf": "+Inf", "+.inf": "+Inf", "-.inf": "-Inf", ".nan": "NaN"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Object(dict[str, Value]):
    """A JSON object; `repeated` lists the names given more than once (the last value counts)."""

    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: its value, the text it came from, and complaints about repeated YAML keys."""

    value: Value
    text: str
    repeated_keys: str | None = None


def parse(source: str | bytes) -> Document:
    """Parse JSON if the text starts with `{`, YAML otherwise.

    Raises ConfigError if it is neither.
    """
    try:
        text = source.decode() if isinstance(source, bytes) else source.encode().decode()
    except UnicodeError as error:
        raise ConfigError(f"the configuration is not UTF-8 text: {error}") from error
    text = text.removeprefix("\ufeff")
    return _parse_json(text) if text.lstrip().startswith("{") else _parse_yaml(text)


def reads_as_text(scalar: str) -> bool:
    """Whether a plain YAML scalar with these characters is a string, not null, a boolean or a number."""
    return scalar.lower() not in _NOT_JSON and isinstance(_resolve(scalar, 0), str)


def _parse_json(text: str) -> Document:
    try:
        _check_depth(orjson.loads(text))
        # A second reading because orjson keeps no trace of repeated names.
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except ValueError as error:
        raise ConfigError(f"couldn't get version/kind; json parse error: {error}") from error
    return Document(value, text)


def _object(pairs: list[tuple[str, Value]]) -> Object:
    result = Object(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        result.repeated = tuple(dict.fromkeys(name for i, name in enumerate(names) if name in names[:i]))
    return result


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 25 else float(digits)


def _check_depth(value: Value) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"exceeded max depth of {MAX_DEPTH}")
        containers = [item for item in level if isinstance(item, (dict, list))]
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
        depth += 1


@dataclass(slots=True)
class _Node:
    """A collection under construction: keys and values alternate in `children` of a mapping."""

    mapping: bool
    anchor: str | None
    line: int
    children: list["_Done"] = field(default_factory=list)


@dataclass(slots=True)
class _Done:
    value: Value
    line: int
    size: int = 1
    height: int = 0
    key: str | None = None
    merge: bool = False


class _Builder:
    """Builds the value from the parser's events with a stack of its own, so nesting cannot exhaust Python's."""

    def __init__(self) -> None:
        self.stack: list[_Node] = []
        self.anchors: dict[str, _Done | None] = {}
        self.repeated: list[str] = []
        self.root: _Done | None = None

    def run(self, text: str) -> Value:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            self.take(event)
        return None if self.root is None else self.root.value

    def take(self, event: yaml.Event) -> None:
        line = cast(yaml.Mark, event.start_mark).line + 1
        if isinstance(event, yaml.ScalarEvent):
            self.add(_scalar(event, line), event.anchor)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if event.anchor:
                self.anchors[event.anchor] = None
            self.stack.append(_Node(isinstance(event, yaml.MappingStartEvent), event.anchor, line))
            if len(self.stack) > MAX_DEPTH:
                raise ConfigError(f"yaml: exceeded max depth of {MAX_DEPTH}")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            node = self.stack.pop()
            self.add(self.finish(node), node.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self.add(self.alias(cast(str, event.anchor), line), None)

    def alias(self, anchor: str, line: int) -> _Done:
        if anchor not in self.anchors:
            raise ConfigError(f"yaml: unknown anchor '{anchor}' referenced")
        target = self.anchors[anchor]
        if target is None:
            raise ConfigError(f"yaml: anchor '{anchor}' value contains itself")
        return _Done(target.value, line, target.size, target.height, target.key)

    def add(self, done: _Done, anchor: str | None) -> None:
        if len(self.stack) + done.height > MAX_DEPTH:
            raise ConfigError(f"yaml: exceeded max depth of {MAX_DEPTH}")
        if done.size > MAX_NODES:
            raise ConfigError("yaml: document contains excessive aliasing")
        if anchor:
            self.anchors[anchor] = done
        if self.stack:
            self.stack[-1].children.append(done)
        else:
            self.root = done

    def finish(self, node: _Node) -> _Done:
        size = 1 + sum(child.size for child in node.children)
        height = 1 + max((child.height for child in node.children), default=0)
        value = self.mapping(node) if node.mapping else [child.value for child in node.children]
        return _Done(value, node.line, size, height)

    def mapping(self, node: _Node) -> Object:
        merged: dict[str, Value] = {}
        own: dict[str, Value] = {}
        for name, item in zip(node.children[::2], node.children[1::2], strict=True):
            if name.merge:
                for source in item.value if isinstance(item.value, list) else [item.value]:
                    if not isinstance(source, dict):
                        raise ConfigError("yaml: map merge requires map or sequence of maps as the value")
                    merged = {**source, **merged}
                continue
            if name.key is None:
                raise ConfigError(f"yaml: line {name.line}: invalid map key: {_kind(name.value)}")
            if name.key in own:
                self.repeated.append(f"  line {item.line}: key {json.dumps(name.key)} already set in map")
            own[name.key] = item.value
        # sigs.k8s.io/yaml goes through a sorted JSON text: errors come in the order of the names.
        return Object(sorted({**merged, **own}.items()))


def _parse_yaml(text: str) -> Document:
    builder = _Builder()
    try:
        value = builder.run(text)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"yaml: {line}{error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the scanner lets chr() fail on bad escapes
        raise ConfigError(f"yaml: {' '.join(str(error).split())}") from error
    repeated = "\n".join(["yaml: unmarshal errors:", *builder.repeated]) if builder.repeated else None
    return Document(value, text, repeated)


def _scalar(event: yaml.ScalarEvent, line: int) -> _Done:
    text: str = event.value
    if _SURROGATE.search(text):
        raise ConfigError(f"yaml: line {line}: found invalid Unicode character escape code")
    plain = event.style is None and event.tag in (None, "tag:yaml.org,2002:null")
    plain = plain or event.tag in {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool")}
    value = _resolve(text, line) if plain else text
    key = text if isinstance(value, str) else None if value is None else json.dumps(value)
    return _Done(value, line, key=key, merge=plain and text == "<<")


def _resolve(text: str, line: int) -> Value:
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    digits = text.replace("_", "") if text[0] in "+-.0123456789" else ""
    if _INTEGER.fullmatch(digits) and len(digits) < 70 and -(1 << 63) <= (number := _go_int(digits)) < 1 << 64:
        return number
    if _FLOAT.fullmatch(digits):
        real = float(digits)
        if real in (float("inf"), float("-inf")):
            return text  # goyaml leaves what does not fit in a float a string
        return int(real) if real.is_integer() and abs(real) < 1e21 else real
    if text.lower() in _NOT_JSON:
        raise ConfigError(f"yaml: line {line}: json: unsupported value: {_NOT_JSON[text.lower()]}")
    return text


def _go_int(digits: str) -> int:
    body = digits.lstrip("+-")
    octal = len(body) > 1 and body[0] == "0" and body[1].isdigit()
    return int(digits, 8) if octal else int(digits, 0)


def _kind(value: Value) -> str:
    return "null" if value is None else "an object" if isinstance(value, dict) else "a list"
