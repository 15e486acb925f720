"""Recorded values that say what may differ: alternatives, and placeholders for names, uids and times."""

import re

ABSENT = "<absent>"
UNSTABLE = "unstable"
ONE_OF_THE_PENDING = "<one of the pending>"

_PLACEHOLDERS = re.compile(r"(<a member>|<uid of a member>|<uid of [^>]+>)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Names:
    """What placeholders stand for: `pods` namespace/name -> uid of all pods there ever were, `pending` keys of some."""

    def __init__(self, pods, pending=()):
        self.pods = pods
        self.pending = set(pending)
        members = [*pods, *(key.partition("/")[2] for key in pods)]
        self._member = "|".join(sorted(map(re.escape, members), key=len, reverse=True)) or "(?!)"
        self._uid = "|".join(map(re.escape, pods.values())) or "(?!)"

    def pattern(self, text):
        """The regular expression of a recorded text."""
        return "".join(map(self._part, _PLACEHOLDERS.split(text)))

    def _part(self, part):
        if part == "<a member>":
            return f"(?:{self._member})"
        if part == "<uid of a member>":
            return f"(?:{self._uid})"
        if part.startswith("<uid of "):
            return re.escape(self.pods.get(part.removeprefix("<uid of ").removesuffix(">"), part))
        return re.escape(part)


def differences(ours, recorded, names, path=""):
    """What differs from a recorded value, as texts; an entry that is ABSENT is as one that is not there."""
    if isinstance(recorded, dict) and recorded.keys() == {UNSTABLE}:
        if any(not differences(ours, each, names) for each in recorded[UNSTABLE]):
            return []
        return [f"{path}: {ours!r}, recorded one of {recorded[UNSTABLE]!r}"]
    if isinstance(recorded, dict) and isinstance(ours, dict):
        keys = sorted({*ours, *recorded})
        found = [differences(ours.get(key, ABSENT), recorded.get(key, ABSENT), names, f"{path}.{key}") for key in keys]
        return [text for texts in found for text in texts]
    if isinstance(recorded, list) and isinstance(ours, list) and len(ours) == len(recorded):
        pairs = enumerate(zip(ours, recorded, strict=True))
        return [text for at, pair in pairs for text in differences(*pair, names, f"{path}[{at}]")]
    if isinstance(recorded, str) and isinstance(ours, str) and _text_matches(ours, recorded, names):
        return []
    return [] if ours == recorded else [f"{path}: {ours!r}, recorded {recorded!r}"]


def _text_matches(ours, recorded, names):
    if recorded == "<time>":
        return _TIME.fullmatch(ours) is not None
    if recorded == ONE_OF_THE_PENDING:
        return ours in names.pending
    return re.fullmatch(names.pattern(recorded), ours) is not None
