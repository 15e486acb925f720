"""Parts of objects that many objects share, kept decoded and encoded at once.

The pods of a workload have one spec. Read from its request, checked, completed and encoded once, it costs the next pod
a look-up; writing any later version of the pod (its status, its binding) copies the spec's bytes instead of encoding
what did not change.
"""

from __future__ import annotations

from typing import Any, NoReturn

import orjson

from koordsched.fakecluster import errors

Object = dict[str, Any]


class Preencoded(dict[str, Any]):
    """A decoded JSON object with its encoding. Shared and read only, as is all within it: to change it, copy it."""

    __slots__ = ("encoded",)

    def __init__(self, content: Object, encoded: bytes) -> None:
        super().__init__(content)
        self.encoded = encoded

    def having(self, key: str, value: Any) -> Preencoded:
        """A copy in which `key` is `value`."""
        content = {**self, key: value}
        if not self or key in self:
            return preencode(content)
        return Preencoded(content, b"%s,%s:%s}" % (self.encoded[:-1], orjson.dumps(key), orjson.dumps(value)))

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a pre-encoded part is shared and cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def preencode(content: Object) -> Preencoded:
    """The object with its encoding; its content must not be changed any more."""
    return Preencoded(content, _dumps(content))


def encode(obj: Object) -> bytes:
    """An API object as JSON; a pre-encoded spec is copied, not encoded again."""
    spec = obj.get("spec")
    if spec.__class__ is Preencoded:
        obj = {**obj, "spec": orjson.Fragment(spec.encoded)}
    return _dumps(obj)


def _dumps(obj: Object) -> bytes:
    try:
        return orjson.dumps(obj)
    except TypeError as error:
        # What is nested more deeply than that can be read, but not written.
        raise errors.bad_request(f"the object cannot be stored: {error}") from error
