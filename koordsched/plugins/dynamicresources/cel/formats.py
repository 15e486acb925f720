"""Named formats: format.dns1123Label().validate(text) and the like, with apimachinery's complaints."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from koordsched.config.qualified_names import (
    label_value_errors,
    qualified_name_errors,
    regex_complaint,
    subdomain_errors,
)
from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, function, method, tenths
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.urls import parse_url
from koordsched.plugins.dynamicresources.cel.values import NONE, Opaque, Optional, Value

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LONGEST_LABEL = 63
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII)

Complaints = list[str]


class Format(Opaque):
    """A format: `complain` says what is wrong with a text; `regex_size` is a length of pattern, for the cost."""

    __slots__ = ("complain", "name", "regex_size")
    type = types.FORMAT
    go_name = "cel.Format"

    def __init__(self, name: str, regex_size: int, complain: Callable[[str], Complaints]) -> None:
        self.name = name
        self.regex_size = regex_size
        self.complain = complain

    def equals(self, other: Value) -> bool:
        """Same format. Raises Failure if the other is none."""
        if type(other) is not Format:
            raise no_such_overload()
        return self.name == other.name

    def __str__(self) -> str:
        return self.name


def _too_long(text: str) -> Complaints:
    long = len(text.encode(errors="surrogatepass")) > _LONGEST_LABEL
    return [f"must be no more than {_LONGEST_LABEL} bytes"] if long else []


def _label(text: str) -> Complaints:
    complaints = _too_long(text)
    if not re.fullmatch(_LABEL, text, re.ASCII):
        what = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
        dotted = re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text, re.ASCII)
        complaints.append("must not contain dots" if dotted else regex_complaint(what, _LABEL, "my-name", "123-abc"))
    return complaints


def _label_1035(text: str) -> Complaints:
    complaints = _too_long(text)
    if not re.fullmatch(_LABEL_1035, text, re.ASCII):
        what = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        complaints.append(regex_complaint(what, _LABEL_1035, "my-name", "abc-123"))
    return complaints


def _prefix(complain: Callable[[str], Complaints]) -> Callable[[str], Complaints]:
    """The same for what something will be appended to, so that a dash may be last."""

    def check(text: str) -> Complaints:
        return complain(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return check


def _uri(text: str) -> Complaints:
    try:
        parse_url(text)
    except Failure as error:
        return [str(error).removeprefix("URL parse error during conversion from string: ")]
    return []


def _otherwise(complaint: str, valid: Callable[[str], bool]) -> Callable[[str], Complaints]:
    return lambda text: [] if valid(text) else [complaint]


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    try:
        date.fromisoformat(text if text[:4] != "0000" else f"2000{text[4:]}")
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, *rest = text.lower().split("t")
    if not rest or not _is_date(day):
        return False
    found = _TIME.fullmatch(rest[0])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


_FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", 30, _label),
    "dns1123Subdomain": Format("DNS1123Subdomain", 60, subdomain_errors),
    "dns1035Label": Format("DNS1035Label", 30, _label_1035),
    "qualifiedName": Format("QualifiedName", 60, qualified_name_errors),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", 30, _prefix(_label)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", 60, _prefix(subdomain_errors)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", 30, _prefix(_label_1035)),
    "labelValue": Format("LabelValue", 40, label_value_errors),
    "uri": Format("URI", 1103, _uri),
    "uuid": Format(
        "uuid", 78, _otherwise("does not match the UUID format", lambda text: _UUID.fullmatch(text) is not None)
    ),
    "byte": Format("byte", 84, _otherwise("invalid base64", lambda text: _BASE64.fullmatch(text) is not None)),
    "date": Format("date", 80, _otherwise("invalid date", _is_date)),
    "datetime": Format("datetime", 80, _otherwise("invalid datetime", _is_datetime)),
}


def _validate(format_: Format, text: str) -> Optional:
    complaints = format_.complain(text)
    return Optional(tuple(complaints)) if complaints else NONE


def _validate_cost(format_: Value, text: Value) -> int:
    if type(format_) is not Format or type(text) is not str:
        return 1
    return tenths(1 + len(text)) * -(-format_.regex_size // 4)


def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return Optional(found) if found is not None else NONE


def _constant(format_: Format) -> Callable[[], Format]:
    return lambda: format_


OVERLOADS: Final[tuple[Overload, ...]] = (
    method("validate", "format-validate", "Format, string", "optional(list(string))", _validate, cost=_validate_cost),
    function("format.named", "format-named", "string", "optional(Format)", _named),
    *(
        function(f"format.{name}", f"format.{name}", "", "Format", _constant(format_))
        for name, format_ in _FORMATS.items()
    ),
)
