"""What is written about a quarantine: an annotation of the workload's namespace.

    quarantine.koordsched.io/deployment.web: '{"kind":"Deployment","name":"web","since":"...","until":"...",...}'

The scheduler sees neither Deployments nor CronJobs, but it sees namespaces; and a person who may change a namespace
may judge its workloads. A quarantine is lifted by removing the annotation.
"""

from __future__ import annotations

import hashlib

import msgspec

from koordsched.plugins.shared.workloads import Workload

PREFIX = "quarantine.koordsched.io/"
_LONGEST = 63
"""Characters of the name of an annotation behind its prefix (apimachinery `util/validation`)."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A quarantine. `since`, `until`: RFC 3339. `nodes`: those that went down, out of `placed`.

    `chance`: the probability that the workload did not cause this, as text.
    """

    kind: str
    name: str
    since: str = ""
    until: str = ""
    nodes: tuple[str, ...] = ()
    placed: int = 0
    chance: str = ""

    def text(self) -> str:
        """The annotation."""
        return _encode(self).decode()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def record_of(text: str) -> Record:
    """The record of an annotation. Raises ValueError."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def key_of(workload: Workload) -> str:
    """The annotation of a workload; a name that is too long for it ends in a hash."""
    name = f"{workload.kind.lower()}.{workload.name}"
    if len(name) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        name = f"{name[: _LONGEST - 11].rstrip('.-_')}.{digest}"
    return PREFIX + name
