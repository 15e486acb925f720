"""IP addresses and networks: ip(), cidr() and their methods, with the errors of Go's net/netip."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, tenths, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.stringformat import quoted
from koordsched.plugins.dynamicresources.cel.values import Opaque, Value, size

Address = IPv4Address | IPv6Address


class IP(Opaque):
    """An address."""

    __slots__ = ("address",)
    type = types.IP
    go_name = "cel.IP"

    def __init__(self, address: Address) -> None:
        self.address = address

    def equals(self, other: Value) -> bool:
        """Same address. Raises Failure if the other is none."""
        if type(other) is not IP:
            raise no_such_overload()
        return self.address == other.address

    def size(self) -> int:
        """Bytes."""
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.address)


class CIDR(Opaque):
    """An address with the length of a prefix; bits beyond it are kept."""

    __slots__ = ("address", "length")
    type = types.CIDR
    go_name = "cel.CIDR"

    def __init__(self, address: Address, length: int) -> None:
        self.address = address
        self.length = length

    def equals(self, other: Value) -> bool:
        """Same address and prefix. Raises Failure if the other is none."""
        if type(other) is not CIDR:
            raise no_such_overload()
        return self.address == other.address and self.length == other.length

    def size(self) -> int:
        """Bytes of the prefix."""
        return -(-self.length // 8)

    def network(self) -> IPv4Network | IPv6Network:
        """All addresses with the prefix."""
        kind = IPv4Network if self.address.version == 4 else IPv6Network
        return kind((int(self.address), self.length), strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def _problem(text: str) -> str:
    """What Go says of a text that is no address."""
    first = next((each for each in text if each in ".:%"), "")
    if first == ".":
        return _problem4(text)
    if first == ":":
        return _problem6(text.partition("%")[0], "%" in text and not text.partition("%")[2])
    return "missing IPv6 address" if first else "unable to parse IP"


def _problem4(text: str) -> str:
    field, dots = "", 0
    for index, character in enumerate(text):
        rest = f"(at {quoted(text[index:])})"
        if character in _DIGITS:
            if field == "0":
                return "IPv4 field has octet with leading zero"
            field += character
            if int(field) > _OCTET:
                return "IPv4 field has value >255"
        elif character == ".":
            if not field or index == len(text) - 1:
                return f"IPv4 field must have at least one digit {rest}"
            if dots == _DOTS:
                return "IPv4 address too long"
            field, dots = "", dots + 1
        else:
            return f"unexpected character {rest}"
    return "IPv4 address too short"


def _problem6(text: str, empty_zone: bool) -> str:
    if empty_zone:
        return "zone must be a non-empty string"
    rest, doubled, fields = text, False, 0
    if rest.startswith("::"):
        rest, doubled = rest[2:], True
    while rest and fields < _FIELDS:
        field = re.match(r"[0-9a-fA-F]*", rest, re.ASCII)
        assert field is not None
        digits, after = field.group(), rest[field.end() :]
        if not digits:
            return f"each colon-separated field must have at least one digit (at {quoted(rest)})"
        if len(digits) > _MOST_DIGITS:
            return f"each group must have 4 or less digits (at {quoted(rest)})"
        if after.startswith("."):
            return _problem_embedded(rest, fields, doubled)
        fields += 1
        if not after:
            rest = ""
            break
        if after[0] != ":":
            return f"unexpected character, want colon (at {quoted(after)})"
        if after == ":":
            return 'colon must be followed by more characters (at ":")'
        rest = after[1:]
        if rest.startswith(":"):
            if doubled:
                return f"multiple :: in address (at {quoted(rest)})"
            rest, doubled = rest[1:], True
    if rest:
        return f"trailing garbage after address (at {quoted(rest)})"
    return "address string too short" if fields < _FIELDS else "the :: must expand to at least one field of zeros"


def _problem_embedded(text: str, fields: int, doubled: bool) -> str:
    if not doubled and fields != _FIELDS - 2:
        return f"embedded IPv4 address must replace the final 2 fields of the address (at {quoted(text)})"
    if fields + 2 > _FIELDS:
        return f"too many hex fields to fit an embedded IPv4 at the end of the address (at {quoted(text)})"
    return _problem4(text)


_DIGITS = frozenset("0123456789")
_OCTET, _DOTS = 255, 3
_FIELDS, _MOST_DIGITS = 8, 4


def _address(text: str) -> Address:
    """An address. Raises ValueError with Go's text if it is none."""
    kinds: tuple[Callable[[str], Address], ...] = (IPv4Address, IPv6Address)
    if text.isascii():
        for kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    raise ValueError(f"ParseAddr({quoted(text)}): {_problem(text)}")


def _mapped(address: Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


def parse_ip(text: str) -> IP:
    """An address without a zone. Raises Failure."""
    try:
        address = _address(text)
    except ValueError as error:
        raise Failure(f"IP Address {quoted(text)} parse error during conversion from string: {error}") from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise Failure(f"IP address {quoted(text)} with zone value is not allowed")
    if _mapped(address):
        raise Failure(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return IP(address)


def parse_cidr(text: str) -> CIDR:
    """An address and the length of its prefix. Raises Failure."""
    prefix = "network address parse error during conversion from string: "
    try:
        address, length = _prefix(text)
    except ValueError as error:
        raise Failure(f"{prefix}{prefix}{error}") from None
    if _mapped(address):
        raise Failure(f"{prefix}IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return CIDR(address, length)


def _prefix(text: str) -> tuple[Address, int]:
    call = f"netip.ParsePrefix({quoted(text)})"
    before, slash, digits = text.rpartition("/")
    if not slash:
        raise ValueError(f"{call}: no '/'")
    try:
        address = _address(before)
    except ValueError as error:
        raise ValueError(f"{call}: {error}") from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise ValueError(f"{call}: IPv6 zones cannot be present in a prefix")
    valid = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    if not valid:
        raise ValueError(f"{call}: bad bits after slash: {quoted(digits)}")
    if len(digits) > 3 or int(digits) > address.max_prefixlen:
        raise ValueError(f"{call}: prefix length out of range")
    return address, int(digits)


def _valid(parse: Callable[[str], Value]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except Failure:
            return False
        return True

    return check


def _contains_ip(cidr: CIDR, ip: IP) -> bool:
    return ip.address.version == cidr.address.version and ip.address in cidr.network()


def _contains_cidr(cidr: CIDR, other: CIDR) -> bool:
    if cidr.address.version != other.address.version or cidr.length > other.length:
        return False
    return cidr.network().overlaps(other.network())


def _masked(cidr: CIDR) -> CIDR:
    return CIDR(cidr.network().network_address, cidr.length)


def _twice(text: str) -> int:
    return tenths(2 * len(text))


def _contains_ip_cost(cidr: CIDR, other: Value) -> int:
    return tenths(2 * cidr.size()) + (tenths(size(other)) if type(other) is str else 0)


def _contains_cidr_cost(cidr: CIDR, other: Value) -> int:
    return tenths(cidr.size()) + 1 + _contains_ip_cost(cidr, other)


def _flag(name: str, identifier: str, holds: Callable[[Address], bool]) -> Overload:
    return method(name, identifier, "IP", "bool", lambda ip: holds(ip.address))


def _link_local_multicast(address: Address) -> bool:
    if address.version == 4:
        return int(address) >> 8 == 0xE00000
    return int(address) >> 112 & 0xFF0F == 0xFF02


def _global_unicast(address: Address) -> bool:
    if address.version == 4 and int(address) == 0xFFFFFFFF:
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("ip", "string_to_ip", "string", "IP", parse_ip, cost=traversal),
    method("family", "ip_family", "IP", "int", lambda ip: ip.address.version),
    function(
        "ip.isCanonical", "ip_is_canonical", "string", "bool", lambda text: str(parse_ip(text)) == text, cost=_twice
    ),
    _flag("isUnspecified", "ip_is_unspecified", lambda address: address.is_unspecified),
    _flag("isLoopback", "ip_is_loopback", lambda address: address.is_loopback),
    _flag("isLinkLocalMulticast", "ip_is_link_local_multicast", _link_local_multicast),
    _flag("isLinkLocalUnicast", "ip_is_link_local_unicast", lambda address: address.is_link_local),
    _flag("isGlobalUnicast", "ip_is_global_unicast", _global_unicast),
    function("isIP", "is_ip", "string", "bool", _valid(parse_ip), cost=traversal),
    function("string", "ip_to_string", "IP", "string", str),
    function("cidr", "string_to_cidr", "string", "CIDR", parse_cidr, cost=traversal),
    method(
        "containsIP",
        "cidr_contains_ip_string",
        "CIDR, string",
        "bool",
        lambda cidr, text: _contains_ip(cidr, parse_ip(text)),
        cost=_contains_ip_cost,
    ),
    method("containsIP", "cidr_contains_ip_ip", "CIDR, IP", "bool", _contains_ip, cost=_contains_ip_cost),
    method(
        "containsCIDR",
        "cidr_contains_cidr_string",
        "CIDR, string",
        "bool",
        lambda cidr, text: _contains_cidr(cidr, parse_cidr(text)),
        cost=_contains_cidr_cost,
    ),
    method("containsCIDR", "cidr_contains_cidr", "CIDR, CIDR", "bool", _contains_cidr, cost=_contains_cidr_cost),
    method("ip", "cidr_ip", "CIDR", "IP", lambda cidr: IP(cidr.address)),
    method("prefixLength", "cidr_prefix_length", "CIDR", "int", lambda cidr: cidr.length),
    method("masked", "cidr_masked", "CIDR", "CIDR", _masked),
    function("isCIDR", "is_cidr", "string", "bool", _valid(parse_cidr), cost=traversal),
    function("string", "cidr_to_string", "CIDR", "string", str),
)
