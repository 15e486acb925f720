"""URLs: url(), isURL() and their parts, as Go's net/url reads them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, traversal
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.stringformat import quoted
from koordsched.plugins.dynamicresources.cel.values import Map, Opaque, Value

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})(.{0,2})", re.ASCII | re.DOTALL)
_PORT = re.compile(r":[0-9]*|", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]*")
_PATH_SAFE = "/-_.~!$&'()*+,;=:@"


class URL(Opaque):
    """An absolute URL or path."""

    __slots__ = ("host", "path", "query", "scheme", "text")
    type = types.URL
    go_name = "cel.URL"

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def equals(self, other: Value) -> bool:
        """Same text. Raises Failure if the other is no URL."""
        if type(other) is not URL:
            raise no_such_overload()
        return self.text == other.text

    def __str__(self) -> str:
        return self.text


def parse_url(text: str) -> URL:
    """An absolute URL or path. Raises Failure with Go's text if it is none."""
    try:
        return _parse(text)
    except ValueError as error:
        problem = f"parse {quoted(text)}: {error}"
        raise Failure(f"URL parse error during conversion from string: {problem}") from None


def _parse(text: str) -> URL:
    if any(ord(each) < 0x20 or ord(each) == 0x7F for each in text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return URL(text, "", "", "*", "")
    rest, scheme = text, ""
    before, colon, after = text.partition(":")
    if colon and _SCHEME.fullmatch(before):
        scheme, rest = before.lower(), after
    elif colon and not before:
        raise ValueError("missing protocol scheme")
    elif colon and "/" not in before and not re.match(r"[A-Za-z]", before):
        raise ValueError("first path segment in URL cannot contain colon")
    body, _, query = rest.partition("#")[0].partition("?")
    host = ""
    if not body.startswith("/"):
        # Only a path or an authority makes a URL that a request could be sent to.
        if scheme:
            return URL(text, scheme, "", "", query)
        raise ValueError("invalid URI for request")
    if scheme and body.startswith("//") and not body.startswith("///"):
        authority, slash, path = body[2:].partition("/")
        host, body = _host(authority), slash + path
    _check_escapes(body)
    return URL(text, scheme, host, body, query)


def _host(authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and re.search(r"[^A-Za-z0-9\-._:~!$&'()*+,;=%@]", user):
        raise ValueError("net/url: invalid userinfo")
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise ValueError("missing ']' in host")
        port = host[closing + 1 :]
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if not _PORT.fullmatch(port):
        raise ValueError(f"invalid port {quoted(port)} after host")
    if (bad := _HOST.match(host)) is not None and bad.end() < len(host):
        raise ValueError(f"invalid character {quoted(host[bad.end()])} in host name")
    _check_escapes(host)
    return unquote_to_bytes(host).decode(errors="replace") if "%" in host else host


def _check_escapes(text: str) -> None:
    if bad := _ESCAPE.search(text):
        raise ValueError(f"invalid URL escape {quoted(bad.group())}")


def _is_url(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _hostname(url: URL) -> str:
    host = _without_port(url.host)[0]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _without_port(host: str) -> tuple[str, str]:
    colon = host.rfind(":")
    if colon >= 0 and _PORT.fullmatch(host[colon:]) and "]" not in host[colon:]:
        return host[:colon], host[colon + 1 :]
    return host, ""


def _escaped_path(url: URL) -> str:
    if re.fullmatch(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@/%\[\]]*", url.path, re.ASCII):
        return url.path
    return quote(unquote_to_bytes(url.path), safe=_PATH_SAFE)


def _query(url: URL) -> Map:
    values: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        if _ESCAPE.search(pair):
            continue
        values.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return Map((key, tuple(each)) for key, each in values.items())


OVERLOADS: Final[tuple[Overload, ...]] = (
    function("url", "string_to_url", "string", "URL", parse_url, cost=traversal),
    method("getScheme", "url_get_scheme", "URL", "string", lambda url: url.scheme),
    method("getHost", "url_get_host", "URL", "string", lambda url: url.host),
    method("getHostname", "url_get_hostname", "URL", "string", _hostname),
    method("getPort", "url_get_port", "URL", "string", lambda url: _without_port(url.host)[1]),
    method("getEscapedPath", "url_get_escaped_path", "URL", "string", _escaped_path),
    method("getQuery", "url_get_query", "URL", "map(string, list(string))", _query),
    function("isURL", "is_url_string", "string", "bool", _is_url),
)
