"""What koord-scheduler's status loop had written to the quotas at the end of each record, and what ours writes."""

import json

import pytest

from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.arithmetic.amounts import parse
from tests.parity.koord import API_VERSIONS, KoordReplay, load, names
from tests.virtualtime import run

WRITTEN = (
    api.RUNTIME,
    api.REQUEST,
    api.CHILD_REQUEST,
    api.GUARANTEED,
    api.ALLOCATED,
    api.NON_PREEMPTIBLE_REQUEST,
    api.NON_PREEMPTIBLE_USED,
)


def recorded(name):
    record = load(name)
    return not record.get("upstreamDefect") and not record.get("unstable") and record["expected"].get("objects")


def nonzero(quantities):
    return {name: amount for name, amount in parse(quantities or {})[0].items() if amount}


def shown(obj):
    """What an object shows, as numbers; entries that are zero equal missing ones."""
    annotations = (obj.get("metadata", obj).get("annotations")) or {}
    found = {key: nonzero(json.loads(annotations.get(key, "{}"))) for key in WRITTEN}
    found["used"] = nonzero((obj.get("status") or {}).get("used"))
    return found


class ReplayWithObjects(KoordReplay):
    """Keeps the quotas of the end, too."""

    def quotas(self):
        found = self.embedded.registry.list(self.embedded.resource("ElasticQuota", API_VERSIONS["ElasticQuota"]))
        return {f"ElasticQuota/{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in found}


@pytest.mark.parametrize("name", [name for name in names("quota-") if recorded(name)])
def test_objects(name):
    record = load(name)

    async def main():
        replay = ReplayWithObjects(record, lambda scheduler: None)
        await replay.play()
        return replay.quotas()

    quotas = run(main())
    for key, expected in record["expected"]["objects"].items():
        if not key.startswith("ElasticQuota/"):
            continue
        obj = quotas[key]
        assert shown(obj) == shown(expected), key
        if "spec" in expected and obj["metadata"]["namespace"] == "koordinator-system":
            for bound in ("min", "max"):
                assert parse(obj["spec"].get(bound) or {}) == parse(expected["spec"].get(bound) or {})
            assert (obj["metadata"].get("labels") or {}) == (expected["labels"] or {})
