"""The end of a run with quotas: what every replica believes of them, and what their objects say."""

import json

from tests.plugins.elasticquota.objects import API_VERSION, PREFIX
from tests.plugins.elasticquota.reference import ROOT
from tests.reference.quantity import parse
from tests.simulation.configuration import PROFILE
from tests.simulation.quotausers import KIND, is_readable

NUMBERS = (
    *("max", "min", "request", "child_request", "limited", "used", "non_preemptible_request", "non_preemptible_used"),
    *("self_request", "self_used", "runtime", "scaled_min"),
)
COUNTED = ("request", "child_request", "used", "non_preemptible_request", "non_preemptible_used", "self_used")


def books_of(scheduler):
    """The plugin's books; None if the profile is without quotas."""
    plugin = scheduler.profiles[PROFILE].plugins.get("ElasticQuota")
    return plugin.books if plugin is not None else None


def believed(scheduler):
    """Quota name -> its numbers, place and pods; {} without quotas."""
    books = books_of(scheduler)
    found = {}
    for quota in books.quotas() if books is not None else ():
        found[quota.name] = {name: _nonzero(getattr(quota, name)) for name in NUMBERS}
        found[quota.name] |= {
            "parent": quota.parent.name if quota.parent is not None else "",
            "pods": sorted((member.pod.key, member.assigned) for member in books.members(quota)),
            "objects": [thing.metadata.namespace for thing in books.objects(quota.name)],
        }
    return found


class QuotaReckoning:
    """Compares with `tests.reference.quotas`. Methods return texts, none if all is well."""

    def __init__(self, server, users, quotas):
        """`quotas`: the reference, of the server's objects."""
        self._server = server
        self._users = users
        self._quotas = quotas

    def differences(self, process):
        """Where the books of a replica differ from a computation from scratch."""
        books, numbers, found = books_of(process.scheduler), self._quotas.numbers, []
        for name, counts in numbers.numbers.items():
            quota = books.quota(name)
            if quota is None:
                found.append(f"{process.name}: there is no quota {name}")
                continue
            found += [
                f"{process.name}: {key} of {name}: {getattr(quota, key)}, from scratch {counts[key]}"
                for key in COUNTED
                if _nonzero(getattr(quota, key)) != _nonzero(counts[key])
            ]
            if name in numbers.runtime and _nonzero(quota.limit) != _nonzero(self._quotas.runtime(name)):
                runtime = self._quotas.runtime(name)
                found.append(f"{process.name}: runtime of {name}: {quota.limit}, from scratch {runtime}")
        return found

    def stale_statuses(self):
        """Objects that do not say what is so."""
        if not self._users.are_known:
            return []
        found = []
        for thing in self._server.objects(KIND, API_VERSION):
            meta = thing["metadata"]
            name = meta["name"]
            if name == ROOT or not is_readable(thing):
                continue
            counts, annotations = self._quotas.numbers.numbers[name], meta.get("annotations") or {}
            shown = {"used": _read((thing.get("status") or {}).get("used"))}
            due = {"used": counts["used"]}
            for key in ("request", "child-request", "non-preemptible-used"):
                shown[key] = _read(json.loads(annotations.get(PREFIX + key) or "{}"))
                due[key] = counts[key.replace("-", "_")]
            for key, amounts in due.items():
                if _nonzero(shown[key]) != _nonzero(amounts):
                    found.append(f"quota {meta['namespace']}/{name} says {key} {shown[key]}, it is {amounts}")
        return found

    def overused(self):
        """Quotas that use more than they may for longer than is allowed, though pods of theirs could go."""
        found = []
        for name in self._quotas.numbers.runtime:
            limit, used = self._quotas.limit(name), self._quotas.used(name)
            over = {key: (used[key], limit[key]) for key in used if key in limit and used[key] > limit[key]}
            if over and self._quotas.revocable(name):
                found.append(f"quota {name} uses more than it may: {over}")
        return found


def _read(quantities):
    return {name: int(parse(amount) * 10**9) for name, amount in (quantities or {}).items()}


def _nonzero(amounts):
    return {name: amount for name, amount in amounts.items() if amount}
