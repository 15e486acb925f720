"""From text to the syntax tree, by the published grammar of CEL (cel-spec, CEL.g4), with the limits of cel-go.

Recursive descent. `_depth` counts nested expressions, as cel-go's recursion limit does: a text that is refused for its
depth there is refused here, and the tree is never too deep for the passes after this one.
"""

from __future__ import annotations

from koordsched.plugins.dynamicresources.cel.macros import Builder, expand
from koordsched.plugins.dynamicresources.cel.source import NOWHERE, Issues, SyntaxFailure
from koordsched.plugins.dynamicresources.cel.syntax import (
    Call,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Message,
    Node,
    Select,
)
from koordsched.plugins.dynamicresources.cel.tokens import (
    END,
    EscapeError,
    Token,
    tokenize,
    unquote,
    unquote_bytes,
)
from koordsched.plugins.dynamicresources.cel.values import Uint

MOST_NESTED = 250
LONGEST = 100_000
"""Code points of a text."""

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_RELATIONS = frozenset(("<", "<=", ">=", ">", "==", "!=", "in"))
_OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


def parse(text: str, issues: Issues) -> Node | None:
    """The tree of a text; None if `issues` says why there is none."""
    if len(text) > LONGEST:
        issues.report(NOWHERE, f"expression code point size exceeds limit: size: {len(text)}, limit {LONGEST}")
        return None
    try:
        return _Parser(tokenize(text, issues), issues).whole()
    except SyntaxFailure:
        return None


class _Parser:
    def __init__(self, tokens: list[Token], issues: Issues) -> None:
        self._tokens = tokens
        self._index = 0
        self._next = tokens[0]
        self._issues = issues
        self._depth = 0
        self._builder = Builder(issues)

    def whole(self) -> Node:
        """The expression that all tokens are."""
        tree = self._expression()
        if self._next.kind != END:
            self._unexpected(f"{END}")
        return tree

    # --- tokens

    def _advance(self) -> Token:
        token = self._next
        if token.kind != END:
            self._index += 1
            self._next = self._tokens[self._index]
        return token

    def _take(self, kind: str) -> Token | None:
        return self._advance() if self._next.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._next.kind != kind:
            self._unexpected(f"'{kind}'" if not kind[0].isalpha() else kind)
        return self._advance()

    def _unexpected(self, expected: str) -> None:
        token = self._next
        self._fail(token.position, f"Syntax error: mismatched input '{token.text}' expecting {expected}")

    def _fail(self, position: int, message: str) -> None:
        self._issues.report(position, message)
        raise SyntaxFailure

    def _check_depth(self, depth: int) -> None:
        if depth > MOST_NESTED:
            self._fail(NOWHERE, f"expression recursion limit exceeded: {MOST_NESTED}")

    # --- expressions

    def _expression(self) -> Node:
        self._depth += 1
        self._check_depth(self._depth)
        tree = self._disjunction()
        if question := self._take("?"):
            chosen = self._disjunction()
            self._expect(":")
            tree = Call(question.position, "_?_:_", None, [tree, chosen, self._expression()])
        self._depth -= 1
        return tree

    def _disjunction(self) -> Node:
        tree = self._conjunction()
        if self._next.kind != "||":
            return tree
        terms, position = [tree], self._next.position
        while self._take("||"):
            terms.append(self._conjunction())
        return Call(position, "_||_", None, terms)

    def _conjunction(self) -> Node:
        tree = self._relation()
        if self._next.kind != "&&":
            return tree
        terms, position = [tree], self._next.position
        while self._take("&&"):
            terms.append(self._relation())
        return Call(position, "_&&_", None, terms)

    def _relation(self) -> Node:
        tree, chained = self._sum(), self._depth
        while self._next.kind in _RELATIONS:
            operator = self._advance()
            chained += 1
            self._check_depth(chained)
            name = "@in" if operator.kind == "in" else f"_{operator.kind}_"
            tree = Call(operator.position, name, None, [tree, self._sum()])
        return tree

    def _sum(self) -> Node:
        tree, chained = self._product(), self._depth
        while self._next.kind in ("+", "-"):
            operator = self._advance()
            chained += 1
            self._check_depth(chained)
            tree = Call(operator.position, f"_{operator.kind}_", None, [tree, self._product()])
        return tree

    def _product(self) -> Node:
        tree, chained = self._unary(), self._depth
        while self._next.kind in ("*", "/", "%"):
            operator = self._advance()
            chained += 1
            self._check_depth(chained)
            tree = Call(operator.position, f"_{operator.kind}_", None, [tree, self._unary()])
        return tree

    def _unary(self) -> Node:
        first = self._next
        if first.kind not in ("!", "-"):
            return self._member()
        count = 0
        while self._next.kind == first.kind:
            if first.kind == "-" and self._tokens[self._index + 1].kind in ("NUM_INT", "NUM_FLOAT") and count % 2 == 0:
                break  # the sign belongs to the number
            self._advance()
            count += 1
        operand = self._member()
        return Call(first.position, f"{first.kind}_", None, [operand]) if count % 2 else operand

    def _member(self) -> Node:
        tree, chained = self._primary(), self._depth
        while self._next.kind in (".", "["):
            operator = self._advance()
            chained += 1
            self._check_depth(chained)
            optional = self._take("?") is not None
            if operator.kind == "[":
                index = self._expression()
                self._expect("]")
                tree = Call(operator.position, "_[?_]" if optional else "_[_]", None, [tree, index])
                continue
            name = self._next
            if name.kind not in ("IDENTIFIER", "ESC_IDENTIFIER"):
                self._fail(name.position, f"Syntax error: no viable alternative at input '.{name.text}'")
            self._advance()
            if optional:
                field = Literal(name.position, self._plain(name))
                tree = Call(operator.position, "_?._", None, [tree, field])
            elif name.kind == "IDENTIFIER" and (opening := self._take("(")):
                tree = expand(self._builder, opening.position, name.text, tree, self._arguments())
            else:
                tree = Select(operator.position, tree, self._plain(name))
        return tree

    def _plain(self, name: Token) -> str:
        if name.kind == "ESC_IDENTIFIER":
            self._fail(name.position, "unsupported syntax: '`'")
        return name.text

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._take(")"):
            return arguments
        while True:
            arguments.append(self._expression())
            if not self._take(","):
                self._expect(")")
                return arguments

    def _primary(self) -> Node:
        token = self._next
        if token.kind == "(":
            self._advance()
            tree = self._expression()
            self._expect(")")
            return tree
        if token.kind == "[":
            return self._list()
        if token.kind == "{":
            self._advance()
            return MapNode(token.position, self._entries(message=False))
        if token.kind in (".", "IDENTIFIER"):
            return self._name()
        return self._literal()

    def _name(self) -> Node:
        dot = self._take(".")
        token = self._next
        if token.kind != "IDENTIFIER":
            self._unexpected("IDENTIFIER")
        if (message := self._message_name(dot)) is not None:
            return message
        self._advance()
        name = f".{token.text}" if dot else token.text
        if token.text in RESERVED:
            position = dot.position if dot else token.position
            self._fail(position, f"reserved identifier: {token.text}")
        if opening := self._take("("):
            return expand(self._builder, opening.position, name, None, self._arguments())
        return Ident(token.position, name)

    def _message_name(self, dot: Token | None) -> Node | None:
        index, names = self._index, []
        while self._tokens[index].kind == "IDENTIFIER":
            names.append(self._tokens[index].text)
            index += 1
            if self._tokens[index].kind == "{":
                break
            if self._tokens[index].kind != ".":
                return None
            index += 1
        if self._tokens[index].kind != "{":
            return None
        while self._index < index:
            self._advance()
        opening = self._advance()
        name = ".".join(names)
        return Message(opening.position, f".{name}" if dot else name, self._entries(message=True))

    def _list(self) -> Node:
        opening = self._advance()
        elements: list[Node] = []
        optional = set()
        while not self._take("]"):
            if self._take("?"):
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._take(","):
                self._expect("]")
                break
        return ListNode(opening.position, elements, frozenset(optional))

    def _entries(self, *, message: bool) -> list[Entry]:
        entries: list[Entry] = []
        while not self._take("}"):
            optional = self._take("?") is not None
            key: Node
            if message:
                name = self._next
                if name.kind not in ("IDENTIFIER", "ESC_IDENTIFIER"):
                    self._unexpected("{IDENTIFIER, ESC_IDENTIFIER}")
                self._advance()
                key = Literal(name.position, self._plain(name))
            else:
                key = self._expression()
            colon = self._expect(":")
            entries.append(Entry(colon.position, key, self._expression(), optional))
            if not self._take(","):
                self._expect("}")
                break
        return entries

    def _literal(self) -> Node:
        start = self._next
        sign = "-" if self._take("-") else ""
        token = self._next
        if token.kind == "NUM_INT":
            return Literal(start.position, self._integer(start, sign + token.text))
        if token.kind == "NUM_FLOAT":
            self._advance()
            number = float(sign + token.text)
            if number in (float("inf"), float("-inf")):
                self._fail(start.position, "invalid double literal")
            return Literal(start.position, number)
        if sign:
            self._unexpected(_OPERAND)
        if token.kind == "NUM_UINT":
            self._advance()
            number_text = token.text[:-1]
            value = int(number_text, 16 if number_text.startswith("0x") else 10) if len(number_text) < _DIGITS else -1
            if not 0 <= value < 1 << 64:
                self._fail(token.position, "invalid uint literal")
            return Literal(token.position, Uint(value))
        if token.kind in ("STRING", "BYTES"):
            self._advance()
            try:
                content = unquote(token.text) if token.kind == "STRING" else unquote_bytes(token.text)
            except EscapeError as error:
                self._fail(token.position, str(error))
            return Literal(token.position, content)
        if token.kind in ("true", "false", "null"):
            self._advance()
            return Literal(token.position, {"true": True, "false": False, "null": None}[token.kind])
        self._unexpected(_OPERAND)
        raise AssertionError("unreachable")

    def _integer(self, start: Token, text: str) -> int:
        self._advance()
        value = int(text, 16 if "0x" in text else 10) if len(text) < _DIGITS else _LARGEST + 1
        if not _SMALLEST <= value <= _LARGEST:
            self._fail(start.position, "invalid int literal")
        return value


_DIGITS = 4000
"""Literals of more digits are not converted: Python refuses that, and the value is too large anyway."""
