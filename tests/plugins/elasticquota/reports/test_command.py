"""`koordsched quota tree` on files: the answer for programs, and the table for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.clusters import Object, bound, node, pod, run, run_json, write

PREFIX = "quota.scheduling.koordinator.sh/"


def quota(
    name: str, minimum: Object, maximum: Object, parent: str = "", namespace: str = "default", **labels: str
) -> Object:
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {PREFIX + "parent": parent, **{PREFIX + key.replace("_", "-"): text for key, text in labels.items()}},
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {"min": minimum, "max": maximum},
    }


def labelled(thing: Object, name: str) -> Object:
    thing["metadata"]["labels"] = {PREFIX + "name": name}
    return thing


CLUSTER = [
    node("n1", cpu="10", memory="10Gi", pods="10"),
    quota("a", {"cpu": 4}, {"cpu": 8}),
    quota("p", {"cpu": 4}, {"cpu": 8, "gpu": 1}, is_parent="true"),
    quota("b", {"cpu": "500m"}, {"cpu": 8}, "p"),
    labelled(bound("a-1", "n1", "7"), "a"),
    labelled(pod("a-2", "3"), "a"),
    labelled(bound("b-1", "n1", "1"), "b"),
    labelled(pod("x", "1"), "nobody"),
]


def flat(quotas: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {}
    for each in quotas:
        found[each["name"]] = each
        found |= flat(each["children"])
    return found


def test_json(tmp_path: Path) -> None:
    code, answer = run_json("quota", "tree", "-f", write(tmp_path / "cluster.yaml", *CLUSTER))
    assert code == 0
    (tree,) = answer["trees"]
    assert (tree["id"], tree["total"]) == ("", {"cpu": "10", "memory": "10Gi", "pods": "10"})
    assert [each["name"] for each in tree["quotas"]] == [
        "a",
        "koordinator-default-quota",
        "koordinator-system-quota",
        "p",
    ]
    quotas = flat(tree["quotas"])
    a = quotas["a"]
    assert (a["namespace"], a["isParent"], a["lent"], a["pods"], a["running"]) == ("default", False, True, 2, 1)
    (cpu,) = a["resources"]
    assert {key: cpu[key] for key in ("min", "max", "runtime", "request", "used")} == {
        "min": "4",
        "max": "8",
        "runtime": "8",
        "request": "10",
        "used": "7",
    }
    # 2 of 10 CPUs are guaranteed to nobody; of the 3 that a uses beyond its min, one is p's.
    assert cpu["borrows"] == [{"quota": "", "amount": "2"}, {"quota": "p", "amount": "1"}]
    p, gpu = quotas["p"]["resources"]
    assert (p["runtime"], p["lends"]) == ("1", [{"quota": "a", "amount": "1"}])
    assert (gpu["resource"], gpu["max"], gpu["used"]) == ("gpu", "1", "0")
    # Half a CPU is b's own, the other half its parent's, guaranteed to none of the children.
    (below,) = quotas["b"]["resources"]
    assert below["borrows"] == [{"quota": "", "amount": "500m"}]
    default = quotas["koordinator-default-quota"]
    assert (default["pods"], default["resources"][0]["max"], default["resources"][0]["runtime"]) == (1, "", "")
    assert answer["unknown"] == {"nobody": 1}
    assert answer["unused"] == {}


def test_what_the_default_quota_uses_is_not_distributed_and_no_min_is_lent_by_none(tmp_path: Path) -> None:
    quotas = [quota("a", {}, {"cpu": 8}), quota("b", {"cpu": 2}, {"cpu": 8})]
    pods = [bound("plain", "n1", "1"), labelled(bound("b-1", "n1", "5"), "b")]
    file = write(tmp_path / "cluster.yaml", node("n1", cpu="6"), *quotas, *pods)
    _, answer = run_json("quota", "tree", "-f", file)
    (tree,) = answer["trees"]
    assert tree["total"]["cpu"] == "5"
    (b,) = flat(tree["quotas"])["b"]["resources"]
    assert b["borrows"] == [{"quota": "", "amount": "3"}]


def test_table(tmp_path: Path) -> None:
    result = run("quota", "tree", "-f", write(tmp_path / "cluster.yaml", *CLUSTER))
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "Default tree: cpu 10, memory 10Gi, pods 10 to distribute"
    rows = [line.split(maxsplit=8) for line in lines[1:]]
    assert rows[0] == ["QUOTA", "PODS", "RESOURCE", "MIN", "MAX", "RUNTIME", "REQUEST", "USED", "LOANS"]
    loans = "borrows 2 that belongs to no quota, 1 from p"
    assert ["a", "1/2", "cpu", "4", "8", "8", "10", "7", loans] in rows
    # Pods of a parent are those of the quotas below it, too.
    assert ["p", "1/1", "cpu", "4", "8", "1", "1", "1", "lends 1 to a"] in rows
    assert any(line.startswith("  b ") for line in lines)
    assert lines[-1] == "Quota nobody does not exist; 1 pod names it."


def test_built_in_quotas_are_shown_on_request(tmp_path: Path) -> None:
    file = write(tmp_path / "cluster.yaml", *CLUSTER)
    assert "koordinator-" not in run("quota", "tree", "-f", file).stdout
    rows = [line.split() for line in run("quota", "tree", "--all", "-f", file).stdout.splitlines()]
    assert ["koordinator-default-quota", "0/1", "cpu"] in [row[:3] for row in rows]


def test_amounts_are_for_people(tmp_path: Path) -> None:
    objects = [
        node("n1", cpu="2000", memory=str(3 << 40), pods="10"),
        quota("a", {"cpu": "1010400m", "memory": str((5 << 30) + 1)}, {"cpu": "1500", "memory": str((1500 << 30) + 7)}),
        labelled(bound("a-1", "n1", "1250m"), "a"),
    ]
    text = run("quota", "tree", "-f", write(tmp_path / "cluster.yaml", *objects)).stdout
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["Default", "tree:", "cpu", "2000,", "memory", "3Ti,", "pods", "10", "to", "distribute"]
    assert rows[2][:8] == ["a", "1/1", "cpu", "1010.4", "1500", "1.25", "1.25", "1.25"]
    assert rows[3][:3] == ["memory", "5Gi", "1.46Ti"]


def test_a_parent_above_its_max_says_why(tmp_path: Path) -> None:
    """`borrower` has all that its parent may use, then `late` gets its min."""
    objects = [
        node("n1", cpu="100", memory="100Gi", pods="50"),
        quota("team", {"cpu": 40}, {"cpu": 50}, is_parent="true"),
        quota("borrower", {"cpu": 10}, {"cpu": 50}, "team"),
        quota("late", {"cpu": 20}, {"cpu": 50}, "team"),
        quota("lowered", {"cpu": 5}, {"cpu": 10}),
        labelled(bound("b", "n1", "50"), "borrower"),
        labelled(bound("l", "n1", "20"), "late"),
        labelled(bound("w", "n1", "12"), "lowered"),
    ]
    file = write(tmp_path / "cluster.yaml", *objects)
    _, answer = run_json("quota", "tree", "-f", file)
    (cpu,) = flat(answer["trees"][0]["quotas"])["team"]["resources"]
    assert (cpu["used"], cpu["aboveMax"]) == ("70", "20")
    # Only what is used up to max is borrowed.
    assert sum(int(loan["amount"]) for loan in cpu["borrows"]) == 10
    lines = [line.rstrip() for line in run("quota", "tree", "-f", file).stdout.splitlines()]
    assert [line.split("  ")[-1] for line in lines if line.startswith("team ")] == [
        "borrows 10 that belongs to no quota; 20 above max",
        "team uses 20 cpu above max: quotas below it got their min back.",
    ]
    assert "lowered uses 2 cpu above max: its max was lowered." in lines
    assert not any("above" in line for line in lines if line.startswith(("  borrower", "  late")))


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    quotas = [
        quota("x", {}, {"cpu": 1}, "y"),
        quota("y", {}, {"cpu": 1}, "x"),
        quota("z", {"cpu": "5"}, {"cpu": "lots"}),
        quota("z", {}, {"cpu": 1}, namespace="other"),
    ]
    file = write(tmp_path / "cluster.yaml", node("n1"), *quotas)
    _, answer = run_json("quota", "tree", "-f", file)
    found = flat(answer["trees"][0]["quotas"])
    for name, part in {"x": "leads back", "y": "leads back", "z": "lots"}.items():
        assert any(part in text for text in found[name]["problems"]), name
    assert list(answer["unused"]) == ["other/z"]
    text = run("quota", "tree", "-f", file).stdout
    for name in ("default/x: ", "default/y: ", "default/z: ", "other/z: "):
        assert any(line.startswith(name) for line in text.splitlines()), name


WITHOUT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--config", "{config}"], "no profile enables ElasticQuota"),
        (["-f", "{missing}"], "No such file"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    (tmp_path / "config.yaml").write_text(WITHOUT)
    names = {"config": str(tmp_path / "config.yaml"), "missing": str(tmp_path / "missing.yaml")}
    file = write(tmp_path / "cluster.yaml", *CLUSTER)
    result = run("quota", "tree", "-f", file, *(argument.format(**names) for argument in arguments))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert complaint in result.stderr


def test_no_server_there() -> None:
    result = run("quota", "tree", "--server", "http://127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: http://127.0.0.1:1")


QUOTAS = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    preFilter: {enabled: [{name: ElasticQuota}]}
    postFilter: {disabled: [{name: "*"}], enabled: [{name: ElasticQuota}]}
"""


def test_explain_says_what_the_quota_lacks_and_who_has_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(QUOTAS)
    config = str(tmp_path / "config.yaml")
    file = write(tmp_path / "cluster.yaml", *CLUSTER)
    _, answer = run_json("explain", "a-2", "-f", file, "--config", config)
    assert answer["rejectedBy"] == "ElasticQuota"
    assert answer["refusal"]["quota"] == "a"
    (cpu,) = answer["refusal"]["dimensions"]
    shown = {key: cpu[key] for key in ("resource", "limit", "used", "requested", "missing")}
    assert shown == {"resource": "cpu", "limit": "8", "used": "7", "requested": "3", "missing": "2"}
    assert cpu["heldBy"] == [{"name": "default/a-1", "amount": "7"}]
    assert answer["advice"]["verdict"] == "refused"
    text = run("explain", "a-2", "-f", file, "--config", config).stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    start = lines.index("Quota a has no room for this pod.")
    assert lines[start + 1 : start + 4] == [
        "RESOURCE MISSING LIMIT USED REQUESTED HELD BY LENT TO",
        "cpu 2 8 7 3 default/a-1 7",
        "(limit = what the quota may use now)",
    ]
    assert lines[-1] == "ElasticQuota rejects the pod, whatever the node: it waits for room."
