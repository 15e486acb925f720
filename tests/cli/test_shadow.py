"""`koordsched shadow`: as a process beside a user who binds pods by hand, and what it prints."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest
import yaml

from koordsched.cli.objectfiles import InputError
from koordsched.cli.output import console
from koordsched.cli.shadow import only_profile
from koordsched.cli.shadow_output import print_report
from koordsched.scheduling.decisions import Ranked
from koordsched.shadow.judgement import ELSEWHERE, EQUAL, FAILED, NOMINATED, REFUSED, SAME, Judgement
from koordsched.shadow.tally import MOST_GROUPS, OTHER_REASONS, Tally, Waited
from tests.cli.clusters import bound, node, pod, run
from tests.cli.served import served_cluster
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import resolved_with
from tests.scheduling.serving import free_port

NOTE = "note: watching {}; Ctrl-C ends the trial with a report\n"
PODS = "/api/v1/namespaces/default/pods"


def binding(name, to):
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": to}}


def scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_a_trial_until_interrupted(tmp_path):
    port = free_port()
    with served_cluster(tmp_path) as served:
        served.restore(node("n1"), node("n2"), node("n3", taints=[{"key": "team", "effect": "NoSchedule"}]))
        served.restore(bound("busy", "n1", "3"))
        command = [sys.executable, "-m", "koordsched", "shadow", "--kubeconfig", served.kubeconfig]
        command += ["--metrics", str(port), "-o", "json", "--interval", "0.2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            decoder = json.JSONDecoder()
            text = ""

            def report(ready):
                """The first report from now on that is as wanted."""
                nonlocal text
                while True:
                    text += process.stdout.readline()
                    assert text, process.stderr.read()
                    try:
                        found, end = decoder.raw_decode(text)
                    except ValueError:
                        continue
                    text = text[end:].lstrip()
                    if ready(found):
                        return found

            try:
                assert report(lambda _: True)["nodes"] == 3
                for name in ("a", "b", "c"):
                    served.create(PODS, pod(name))
                assert report(lambda found: found["waiting"] == 3)["decisions"] == 0
                for name, to in (("a", "n2"), ("b", "n1"), ("c", "n3")):
                    served.create(f"{PODS}/{name}/binding", binding(name, to))
                found = report(lambda found: found["decisions"] == 3)
                metrics = scraped(port)
                process.send_signal(signal.SIGINT)
                rest, errors = process.communicate(timeout=30)
                assert (process.returncode, errors) == (0, NOTE.format("3 nodes"))
            finally:
                process.kill()
        assert {method for method, _ in served.requests} == {"GET"}
    rest = text + rest
    while rest:
        last, end = decoder.raw_decode(rest)
        rest = rest[end:].lstrip()
    assert last["kinds"] == found["kinds"] == {SAME: 1, EQUAL: 0, ELSEWHERE: 1, REFUSED: 1, FAILED: 0}
    c, b = (difference["judgement"] for difference in found["differences"])
    assert (b["node"], b["instead"], b["theirs"]["node"], b["ours"]["node"]) == ("n1", "n2", "n1", "n2")
    assert (c["node"], c["instead"], c["plugin"]) == ("n3", "n2", "TaintToleration")
    assert found["binding"]["median"] > 0 < found["deciding"]["median"]
    results = {name: value for name, value in metrics.items() if name.startswith("koordsched_shadow_decisions_total")}
    assert sum(results.values()) == 3


def test_the_table_of_a_short_trial(tmp_path):
    with served_cluster(tmp_path) as served:
        served.restore(node("n1"), bound("busy", "n1", "3"))
        result = run("shadow", "--kubeconfig", served.kubeconfig, "--for", "0s")
        assert {method for method, _ in served.requests} == {"GET"}
    assert (result.exit_code, result.stderr) == (0, NOTE.format("1 node"))
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Beside default-scheduler on 1 node, ")
    assert lines[3].split() == ["0", "pods", "placed", "by", "the", "other", "scheduler"]
    assert lines[-1].startswith("0 pods waiting.")


def ranked(name, **scores):
    return Ranked(name, sum(scores.values()), scores)


def test_the_table_says_what_differs(capsys):
    tally = Tally()
    for i in range(3):
        tally.judged(f"shop/same-{i}", 10.0, Judgement(SAME, "n1"), 0.001, 0.5)
    theirs, ours = ranked("n1", Fit=40, Spread=200), ranked("n2", Fit=60, Spread=200)
    elsewhere = Judgement(ELSEWHERE, "n1", "n2", "Fit", feasible=7, theirs=theirs, ours=ours)
    tally.judged("shop/web-1", 20.0, elsewhere, 0.002, 1.5)
    tally.judged("shop/web-2", 21.0, Judgement(REFUSED, "n3", "", "Taint", "untolerated"), 0.002, None)
    tally.judged("shop/web-3", 22.0, Judgement(ELSEWHERE, "n3", "n4", reason=NOMINATED), 0.002, None)
    tally.waited["uid"] = Waited("shop/slow", 1.0, 11.0, "n5", "0/9 nodes are available")
    tally.waited["gone"] = Waited("shop/quick", 1.0, 11.0, "n5", "")
    tally.ended("gone", "n6", 13.5)
    tally.ended("unknown", "n6", 13.5)
    print_report(console(), tally.report("other", 0.0, 60.0, 9, 4), 5)
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "Beside other on 9 nodes, 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z",
        "3 50.0 % the same node",
        "2 33.3 % another node scores higher here",
        "1 16.7 % the node is refused here",
        "6 pods placed by the other scheduler",
        "Time of a decision here: 2 ms (median), 2 ms (99 of 100 are shorter)",
        "Time from a pod's appearance to its binding there: 500 ms (median), 1.5 s (99 of 100 are shorter)",
        "1 Fit prefers another node shop/web-1: n2 instead of n1",
        "1 refused: Taint: untolerated shop/web-2: not n3, nor any other node",
        f"1 {NOMINATED} shop/web-3: n4 instead of n3",
        "shop/web-1, 1970-01-01T00:00:20Z: 7 nodes feasible",
        # Spread scores both alike.
        "NODE TOTAL Fit",
        "n2 here 260 60",
        "n1 there 240 40",
        "shop/slow 1970-01-01T00:00:01Z n5 1970-01-01T00:00:11Z waits 0/9 nodes are available",
        "shop/quick 1970-01-01T00:00:01Z n5 1970-01-01T00:00:11Z n6 after 2.5 s -",
        "4 pods waiting. 2 waited although there was a node here.",
    ):
        assert line in said, line


def test_reasons_are_bounded():
    tally = Tally()
    for i in range(MOST_GROUPS + 50):
        tally.judged(f"a/{i}", 0.0, Judgement(REFUSED, "n", plugin="P", reason=f"claim {i}"), 0.0, None)
    reasons = tally.report("", 0.0, 0.0, 0, 0).reasons
    assert len(reasons) == MOST_GROUPS + 1
    assert (reasons[0].reason, reasons[0].pods) == (OTHER_REASONS, 50)


def test_the_profile_that_decides():
    def names(*profiles):
        configuration = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": name} for name in profiles]}
        return [one.scheduler_name for one in only_profile(resolved_with(configuration, ()), "mine").profiles]

    assert names("mine") == names("other") == names("other", "mine") == ["mine"]
    with pytest.raises(InputError, match="several profiles, none of which is named mine: a, b"):
        names("a", "b")


def test_what_cannot_be_used(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**DEFAULT_CONFIG, "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]}))
    result = run("shadow", "--config", str(config), "--kubeconfig", "nowhere")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "several profiles" in result.stderr
    for address in ("x", "host:", "1:99999"):
        assert run("shadow", "--metrics", address).exit_code == 2
    with served_cluster(tmp_path) as served:
        served.forbid("pods")
        result = run("shadow", "--kubeconfig", served.kubeconfig, "--for", "1s")
        assert (result.exit_code, result.stderr.startswith("error: pods cannot be listed: ")) == (1, True)
