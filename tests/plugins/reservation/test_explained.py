"""Reservations by their names in what commands and pages say, and what `explain` says of them."""

import json

import pytest
import yaml
from click.testing import CliRunner

from koordsched import config
from koordsched.cli import main
from koordsched.plugins import CATALOG
from koordsched.plugins.reservation.kinds import EXACT_MATCH, NODE_RESERVATION, RESERVATION_AFFINITY
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.running import API, CRD, configuration
from tests.plugins.reservation.test_pages import PROFILE, owner, reservation
from tests.scheduling.serving import embedded_with_users, serving
from tests.waiting import until
from tests.yamlfiles import document

WEB = {"app": "web"}


def asking(cpu, **annotations):
    thing = pod("p", container(cpu=cpu, memory="1Gi"), labels=WEB)
    thing["metadata"]["annotations"] = {
        {"affinity": RESERVATION_AFFINITY, "exact": EXACT_MATCH}[name]: json.dumps(value)
        for name, value in annotations.items()
    }
    return thing


@pytest.fixture
def explaining(tmp_path):
    """Runs a command on objects, with the plugin; the answer as JSON values, the lines of the table with it."""
    conf = tmp_path / "config.yaml"
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    conf.write_text(yaml.safe_dump({**head, "profiles": [{"schedulerName": "default-scheduler", **PROFILE}]}))

    def run(objects, *arguments, code=0, without_config=False):
        file = tmp_path / "state.yaml"
        file.write_text(yaml.safe_dump_all(json.loads(json.dumps(objects))))
        command = [*arguments, "-f", str(file), *([] if without_config else ["--config", str(conf)])]
        answers = [CliRunner().invoke(main, [*command, "-o", output]) for output in ("json", "table")]
        assert [answer.exit_code for answer in answers] == [code, code], answers[0].stderr
        if code == 1:
            return answers[0].stderr
        return json.loads(answers[0].stdout), answers[1].stdout

    return run


@pytest.mark.parametrize("named", ["reservation/r", "reservations/r", "reservations.scheduling.koordinator.sh/r"])
@pytest.mark.parametrize("without_config", [False, True])
def test_a_reservation_is_explained(explaining, named, without_config):
    state = [node("alder", cpu="3"), node("beech", cpu="8", memory="32Gi"), reservation("r")]
    answer, shown = explaining(state, "explain", named, without_config=without_config)
    assert (answer["pod"], answer["virtual"], answer["anyOf"]) == ("reservation/r", True, ["beech"])
    assert shown.startswith("reservation/r, profile default-scheduler\n")
    assert "alder" in shown


def test_one_that_has_a_node_is_explained_as_if_it_had_none(explaining):
    state = [node("alder", cpu="4", memory="32Gi"), reservation("r", "alder")]
    answer, _ = explaining(state, "explain", "reservation/r")
    assert answer["anyOf"] == ["alder"]


def test_one_that_fits_nowhere(explaining):
    state = [node("alder", cpu="3"), reservation("r")]
    answer, _ = explaining(state, "explain", "reservation/r")
    assert answer["advice"]["verdict"] == "never"
    assert answer["message"].startswith("0/1 nodes are available: 1 Insufficient cpu")


def test_a_pod_in_a_namespace_of_that_name(explaining):
    state = [node("alder"), reservation("r"), pod("r", container(cpu="1"), namespace="reservation")]
    answer, _ = explaining(state, "explain", "r", "-n", "reservation")
    assert (answer["pod"], answer["virtual"]) == ("reservation/r", False)


def test_one_that_is_not_there(explaining):
    said = explaining([node("alder"), reservation("red")], "explain", "reservation/rad", code=1)
    assert "no reservation/rad for this scheduler in the input" in said
    said = explaining([node("alder"), reservation("redder")], "explain", "reservation/reddest", code=1)
    assert "there is reservation/redder" in said


def test_a_pod_with_its_reservations(explaining):
    state = [
        node("alder", cpu="16", memory="64Gi"),
        node("beech", cpu="24", memory="64Gi"),
        reservation("a", "alder"),
        reservation("b", "beech", unschedulable=True),
        reservation("c", "beech", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        reservation("d", "beech", allocateOnce=True),
        owner("uses-d", "d", on="beech"),
        reservation("e"),
        reservation("f", "beech", owners=[{"labelSelector": {"matchLabels": {"app": "other"}}}]),
        reservation("g", "beech", allocatePolicy=""),
    ]
    answer, shown = explaining([*state, asking("5", affinity={})], "explain", "default/p")
    assert answer["notes"]["Reservation"] == [
        "a: on alder: the pod may use it",
        "g: on beech: the pod may use it",
        "b: on beech: it takes no new owners: it is unschedulable, or is being deleted",
        "c: on beech: the pod does not tolerate its taint {k: v}",
        "d: on beech: used up by default/uses-d (allocateOnce)",
        "e: has no node yet",
    ]
    for line in answer["notes"]["Reservation"]:
        assert f"  {line}\n" in shown
    answer, _ = explaining([*state, asking("15", affinity={})], "explain", "default/p")
    assert answer["notes"]["Reservation"][-1] == "g: on beech: Insufficient cpu by node"
    answer, _ = explaining([*state, asking("1", affinity={"name": "f"})], "explain", "p")
    assert answer["notes"]["Reservation"][0] == "f: the pod asks for it by name, but its owners do not match"
    assert "a: on alder: the pod asks for another one by name" in answer["notes"]["Reservation"]
    answer, _ = explaining([*state, asking("1", exact={"resourceNames": ["cpu"]})], "explain", "p")
    assert "a: on alder: it does not have exactly what the pod requests" in answer["notes"]["Reservation"]
    elsewhere = asking("1", affinity={})
    elsewhere["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "beech"}
    answer, _ = explaining([*state, elsewhere], "explain", "p")
    assert "a: on alder: the pod does not select this node" in answer["notes"]["Reservation"]
    selecting = asking("1", affinity={"reservationSelector": {"lane": "x"}})
    answer, _ = explaining([*state, selecting], "explain", "p")
    assert "a: on alder: the pod's reservation-affinity does not select it" in answer["notes"]["Reservation"]


def test_one_that_cannot_be_read(explaining):
    """Its owners can."""
    broken = reservation("r", "alder")
    broken["metadata"]["annotations"] = {NODE_RESERVATION: json.dumps({"reservedCPUs": "3-"})}
    answer, _ = explaining([node("alder"), broken, asking("1", affinity={})], "explain", "p")
    [line] = answer["notes"]["Reservation"]
    assert line.startswith(f"r: annotation {NODE_RESERVATION}: reservedCPUs: ")


def test_one_asked_for_by_name_that_is_not_there(explaining):
    answer, _ = explaining([node("alder"), asking("1", affinity={"name": "gone"})], "explain", "p")
    assert answer["notes"]["Reservation"] == ["gone: the pod asks for it by name, and there is none, or it is over"]


def test_names_in_simulate_and_pending(explaining):
    state = [node("alder", cpu="4", memory="32Gi"), reservation("r"), reservation("s"), pod("p", container(cpu="8"))]
    answer, shown = explaining(state, "simulate", code=3)
    assert {one["pod"]: one.get("node", "") for one in answer["pods"]} == {
        "reservation/r": "alder",
        "reservation/s": "",
        "default/p": "",
    }
    assert {one["workload"] for one in answer["pods"]} == {"reservation/r", "reservation/s", "Pod default/p"}
    assert "pending: reservation/s" in shown
    answer, _ = explaining(state, "simulate", "-n", "default", code=3)
    assert [one["pod"] for one in answer["pods"]] == ["default/p"]
    answer, shown = explaining([*state, pod("q", container(cpu="1"), on="alder")], "pending")
    listed = {name for group in answer["groups"] for name in group["pods"]}
    assert listed == {"reservation/r", "reservation/s", "default/p"}
    assert "reservation/r" in shown
    answer, _ = explaining(state, "pending", "-n", "default")
    assert [group["pods"] for group in answer["groups"]] == [["default/p"]]


async def test_a_running_scheduler_is_asked():
    embedded = embedded_with_users()
    embedded.registry.create(
        embedded.registry.resource_for_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        None,
        document(CRD),
    )
    embedded.insert(node("alder", cpu="6", memory="64Gi"))
    embedded.insert(reservation("r"))
    resolved = config.load(json.dumps(configuration()).encode(), catalog=CATALOG)
    async with serving(embedded, configuration=resolved) as running:
        phase = lambda: embedded.get("Reservation", "r", api_version=API).get("status", {}).get("phase")  # noqa: E731
        await until(lambda: phase() == "Available", "the node")
        embedded.insert(reservation("s"))
        embedded.insert(pod("p", container(cpu="9"), labels=WEB))
        await until(lambda: len(list(running.scheduler.decisions.refusals())) == 2, "the refusals")

        async def ask(path):
            status, text = await running.client.get(path)
            return json.loads(text) if status == 200 else (status, text)

        answer = await ask("/debug/explain?pod=reservation/r")
        assert (answer["pod"], answer["node"], answer["decision"]["pod"]) == ("reservation/r", "alder", "reservation/r")
        answer = await ask("/debug/explain?pod=reservations.scheduling.koordinator.sh/s&advice=true")
        assert (answer["pod"], answer["rejection"]["pod"]) == ("reservation/s", "reservation/s")
        assert answer["advice"]["verdict"] == "waits"
        assert await ask("/debug/explain?pod=reservation/t") == (
            404,
            "no reservation/t that this scheduler (default-scheduler) has to place\n",
        )
        answer = await ask("/debug/explain?pod=default/p")
        assert answer["notes"]["Reservation"] == ["r: on alder: Insufficient cpu by node", "s: has no node yet"]
        answer = await ask("/debug/decisions?pod=reservation/r")
        assert [one["node"] for one in answer["decisions"]] == ["alder"]
        answer = await ask("/debug/pending")
        assert sorted(name for group in answer["groups"] for name in group["pods"]) == ["default/p", "reservation/s"]
        shot = await ask("/debug/snapshot")
        listed = [thing for thing in shot["items"] if thing["kind"] in ("Pod", "Reservation")]
        assert sorted((thing["kind"], thing["metadata"]["name"]) for thing in listed) == [
            ("Pod", "p"),
            ("Reservation", "r"),
            ("Reservation", "s"),
        ]
        _, text = await running.client.get("/metrics/resources")
        assert 'pod="p"' in text
        assert 'pod="r"' not in text
