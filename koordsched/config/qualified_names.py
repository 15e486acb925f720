"""Names as apimachinery validates them: qualified names, DNS subdomains, label values, extended resources.

Each function returns the complaints, with the texts of `util/validation/validation.go`.
"""

import re

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_NAME})?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def qualified_name_errors(name: str) -> list[str]:
    """Complaints about `[dns-prefix/]name`, the form of label keys and resource names."""
    prefix, slash, local = name.rpartition("/")
    if prefix.count("/"):
        rule = regex_complaint(_CHARACTERS, _NAME, "MyName", "my.name", "123-abc")
        return [f"a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    complaints = []
    if slash and not prefix:
        complaints.append("prefix part must be non-empty")
    elif slash:
        complaints += [f"prefix part {complaint}" for complaint in subdomain_errors(prefix)]
    if not local:
        return [*complaints, "name part must be non-empty"]
    if len(local.encode()) > 63:
        complaints.append("name part must be no more than 63 bytes")
    if not re.fullmatch(_NAME, local, re.ASCII):
        complaints.append(f"name part {regex_complaint(_CHARACTERS, _NAME, 'MyName', 'my.name', '123-abc')}")
    return complaints


def label_value_errors(value: str) -> list[str]:
    complaints = []
    if len(value.encode()) > 63:
        complaints.append("must be no more than 63 bytes")
    if not re.fullmatch(_LABEL_VALUE, value, re.ASCII):
        what = f"a valid label must be an empty string or consist of {_CHARACTERS.removeprefix('must consist of ')}"
        complaints.append(regex_complaint(what, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return complaints


def is_extended_resource(name: str) -> bool:
    """A resource outside kubernetes.io that a quota can name (`pkg/apis/core/v1/helper`, IsExtendedResourceName)."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name_errors(f"requests.{name}")


def is_scalar_resource(name: str) -> bool:
    """A resource beyond cpu, memory and ephemeral-storage that nodes are accounted for (IsScalarResourceName)."""
    native = "kubernetes.io/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
    return native or is_extended_resource(name)


_CHARACTERS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)


def subdomain_errors(name: str) -> list[str]:
    """Complaints about a DNS subdomain (RFC 1123)."""
    complaints = []
    if len(name.encode()) > 253:
        complaints.append("must be no more than 253 bytes")
    if not re.fullmatch(_SUBDOMAIN, name, re.ASCII):
        what = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
        complaints.append(regex_complaint(what, _SUBDOMAIN, "example.com"))
    return complaints


def regex_complaint(what: str, pattern: str, *examples: str) -> str:
    """The complaint that a name is not what a regular expression wants (`RegexError`)."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"
