"""The functions of modules that are loaded, and other code for them.

The code of a function object is replaced in place. So it takes effect everywhere: in what has been decorated or
bound, and under each name by which another module has imported it.
"""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

Key = tuple[str, str, int]
"""The file of a function, its qualified name and its first line."""


class Live:
    """All functions that there are of some files."""

    def __init__(self, files: list[Path]) -> None:
        names = {str(path) for path in files}
        gc.unfreeze()
        self._functions: dict[Key, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in names:
                self._functions[_key(each.__code__)].append(each)

    def changes(self, path: Path, tree: ast.Module) -> list[tuple[FunctionType, CodeType]]:
        """The functions of a file that have other code in this tree, and that code."""
        return [
            (function, code)
            for code in _codes(compile(tree, str(path), "exec", dont_inherit=True))
            for function in self._functions.get(_key(code), ())
            if function.__code__ != code and function.__code__.co_freevars == code.co_freevars
        ]


def put(changes: list[tuple[FunctionType, CodeType]]) -> None:
    """Gives functions this code, in this process."""
    for function, code in changes:
        function.__code__ = code


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
