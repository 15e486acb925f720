"""How a job wants to be gathered: the annotation `network-topology-spec` (coscheduling spec 2.1, 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from koordsched.api import gojson
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import Wire
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_SPEC

MUST_GATHER = "MustGather"
PREFER_GATHER = "PreferGather"

_INT64 = msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)


class MalformedGathering(ValueError):
    """The annotation cannot be read; the message names it."""


class GatherRule(Wire, frozen=True):
    """One entry. Only MustGather restricts; `pod_count_multiple` counts from 2 on, whatever the strategy."""

    layer: str = ""
    strategy: str = ""
    pod_count_multiple: Annotated[int, _INT64] = 0


class _Written(Wire, frozen=True):
    gather_strategy: tuple[GatherRule, ...] = ()


_decode = Decoder(_Written)


@dataclass(frozen=True, slots=True)
class Gathering:
    """The strategy.

    `must`: the layers of which one domain has to hold the whole job; the one closest to the nodes implies the others.
    `multiples`: layer -> m: the number of pods of the job in each domain of the layer is a multiple of m.
    """

    must: tuple[str, ...] = ()
    multiples: Mapping[str, int] = field(default_factory=dict)

    def unknown(self, layers: tuple[str, ...]) -> list[str]:
        """The layers that it names and that are none of these, in order."""
        return sorted({*self.must, *self.multiples} - {*layers})


def gathering_of(text: str) -> Gathering | None:
    """Reads the annotation; None if it is absent or empty.

    Of several entries for one layer the last multiple counts. Raises MalformedGathering.
    """
    if not text:
        return None
    if text.strip() == "null":
        return Gathering()
    try:
        rules = _decode(text.encode()).gather_strategy
    except (DecodeError, UnicodeEncodeError) as error:
        raise MalformedGathering(
            f"annotation {NETWORK_TOPOLOGY_SPEC}: {gojson.message(text, error, 'extension.NetworkTopologySpec')}"
        ) from None
    must = tuple(dict.fromkeys(rule.layer for rule in rules if rule.strategy == MUST_GATHER))
    return Gathering(must, {rule.layer: rule.pod_count_multiple for rule in rules if rule.pod_count_multiple > 1})
