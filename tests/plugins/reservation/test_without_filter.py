"""Where Filter of the plugin is switched off, Reserve finds the Reservation that a pod uses by itself."""

import pytest

from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.test_explained import WEB, asking
from tests.plugins.reservation.test_pages import reservation

UNFILTERED = {
    "plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}, "filter": {"disabled": [{"name": "*"}]}},
}


@pytest.mark.parametrize("names", ["r", "rs"])
@pytest.mark.parametrize("required", [True, False])
def test_reserve_finds_one(names, required):
    wanted = asking("1", affinity={}) if required else pod("p", container(cpu="1", memory="1Gi"), labels=WEB)
    offline = scheduler(
        [node("alder", cpu="16", memory="64Gi"), *(reservation(each, "alder") for each in names), wanted], UNFILTERED
    )
    attempt = offline.attempt("default/p")
    assert attempt.filter().feasible == 1
    status, _ = offline.take(attempt, offline.cluster.table.row_of["alder"])
    assert status.ok
    plugin = offline.profiles["default-scheduler"].plugins["Reservation"]
    (placed,) = [each for each in offline.cluster.assigned.values() if each.name == "p"]
    assert plugin.cache.used_by(placed).name == "r"
