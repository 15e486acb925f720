"""When a pod was placed decides whether a report contains it: by its status, or since we know it on a node."""

from koordsched.engine.transaction import Transaction
from tests.plugins.loadaware.objects import P16, measured, metric, node, p16, pod
from tests.plugins.loadaware.world import NOW, World

SILENT = p16("silent", on="n")
ESTIMATE = 13600
MOST = 62_879
"""In thousandths of CPUs: 65 percent of the node, rounded."""


def used(world, name="n"):
    return MOST - world.readings()[name, 0].room[0]


def report(at, cpu="1"):
    """Says what the pod uses, for that is what a report does that contains it."""
    return metric(of_node=("10", "1Gi"), at=at, pods=[measured("silent", cpu, "1Gi")])


def test_a_pod_whose_status_does_not_say_is_placed_when_it_is_seen():
    world = World(node(), metric(of_node=("10", "1Gi"), at=NOW), SILENT)
    world.pass_time(30)
    world.put(report(NOW + 30))
    assert used(world) == 10_000 + ESTIMATE - 1000, "it may not contain all of it"
    world.pass_time(60)
    world.put(report(NOW + 90))
    assert used(world) == 10_000


def test_also_if_nothing_is_reported_about_its_node_yet():
    for first, second in ((node(), SILENT), (SILENT, node())):
        world = World(first, second)
        world.pass_time(600)
        world.put(report(NOW + 600))
        assert used(world) == 10_000


def test_also_if_we_placed_it_there():
    world = World(node())
    world.assume(p16("silent"))
    world.pass_time(600)
    world.put(report(NOW + 600))
    assert used(world) == 10_000
    world.put(SILENT)
    assert used(world) == 10_000


def test_placed_again_later_it_is_placed_later():
    world = World(node())
    assert world.cluster.forget(world.assume(p16("silent")))
    world.pass_time(600)
    world.assume(p16("silent"))
    world.put(report(NOW + 600))
    assert used(world) == 10_000 + ESTIMATE - 1000


def test_a_what_if_without_the_pod_does_not_place_it_again():
    world = World(node(), SILENT)
    world.pass_time(600)
    world.put(report(NOW + 600))
    before, announced = world.readings(), len(world.announced)
    with Transaction(world.cluster, world.offline.nominator) as transaction:
        transaction.evict(world.cluster.assigned[SILENT["metadata"]["uid"]])
    assert world.readings() == before
    assert len(world.announced) == announced


def test_a_supposed_placement_does_not_count_from_then():
    world = World(node())
    with Transaction(world.cluster, world.offline.nominator) as transaction:
        world.put(p16("silent"))
        cycle = world.offline.attempt("default/silent").cycle
        assert transaction.place(cycle, world.profile, 0).ok
    world.pass_time(600)
    world.assume(p16("silent"))
    world.put(report(NOW + 600))
    assert used(world) == 10_000 + ESTIMATE - 1000


def test_a_recreated_pod_of_the_same_name_is_placed_anew():
    world = World(node(), report(NOW), pod("silent", P16, P16, on="n", uid="old"))
    world.pass_time(600)
    world.remove(pod("silent", P16, P16, on="n", uid="old"))
    world.put(report(NOW + 600))
    world.put(pod("silent", P16, P16, on="n", uid="new"))
    assert used(world) == 10_000 + ESTIMATE - 1000, "what is reported is taken for its own"


def test_a_report_without_a_time_is_judged_by_the_time_of_the_one_before():
    args = {"filterExpiredNodeMetrics": False}
    world = World(node(), report(NOW), p16("silent", on="n", placed=NOW - 30), args=args)
    assert used(world) == 10_000 + ESTIMATE - 1000
    world.put(report(NOW + 40))
    assert used(world) == 10_000
    world.put(report(None))
    assert used(world) == 10_000
    world.remove(report(None))
    world.put(report(None))
    assert used(world) == 10_000 + ESTIMATE - 1000, "nothing is known of an earlier one"
