"""Pages and metrics of elastic quotas, on a running scheduler."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner

from koordsched import config
from koordsched.cli import main
from koordsched.plugins import CATALOG
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, serving
from tests.waiting import until
from tests.yamlfiles import document

ROOT = Path(__file__).parents[4]
API = "scheduling.sigs.k8s.io/v1alpha1"
PREFIX = "quota.scheduling.koordinator.sh/"
BASE = "/apis/v1/plugins/ElasticQuota/quotas"


def with_quotas():
    return config.load(ROOT / "config" / "examples" / "quota" / "scheduler.yaml", catalog=CATALOG)


async def test_pages(tmp_path):
    embedded = embedded_with_users()
    crd = document(ROOT / "manifests" / "crds" / "elasticquotas.yaml")
    embedded.insert(crd)
    embedded.insert(node("alder"))
    spec = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
    embedded.insert({"apiVersion": API, "kind": "ElasticQuota", "metadata": {"name": "q"}, "spec": spec})
    async with serving(embedded, configuration=with_quotas()) as running:
        get, scheduler = running.client.get, running.scheduler
        for name in ("first", "second"):
            embedded.insert(pod(name, container(cpu="1500m"), labels={PREFIX + "name": "q"}))
        books = scheduler.profiles["default-scheduler"].plugins["ElasticQuota"].books
        await until(lambda: len(list(books.members(books.quota("q")))) == 2, "the pods")
        await until(lambda: books.quota("q").used, "the placement")
        await until(lambda: not scheduler.cluster.assumed, "the confirmation")

        status, text = await get("/debug/quota")
        assert status == 200
        answer = json.loads(text)
        (quota,) = [one for one in answer["trees"][0]["quotas"] if one["name"] == "q"]
        (cpu,) = quota["resources"]
        assert (cpu["runtime"], cpu["request"], cpu["used"]) == ("2", "3", "1500m")

        # A snapshot of the state says the same.
        status, text = await get("/debug/snapshot")
        file = tmp_path / "snapshot.json"
        file.write_text(text)
        example = str(ROOT / "config" / "examples" / "quota" / "scheduler.yaml")
        arguments = ["quota", "tree", "-f", str(file), "--config", example, "-o", "json"]
        offline = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert json.loads(offline.stdout) == answer

        # The paths of upstream's plugin.
        status, text = await get(f"{BASE}/q?includePods=true")
        one = json.loads(text)
        assert (one["name"], one["parentName"], one["tree"]) == ("q", "koordinator-root-quota", "")
        assert (one["used"], one["request"], one["max"]) == ({"cpu": "1500m"}, {"cpu": "3"}, {"cpu": "2"})
        assert sorted(one["podCache"]) == ["default/first", "default/second"]
        assert sorted(each["isAssigned"] for each in one["podCache"].values()) == [False, True]
        assert "podCache" not in json.loads((await get(f"{BASE}/q"))[1])
        everything = json.loads((await get(BASE))[1])
        assert sorted(everything) == ["koordinator-default-quota", "koordinator-system-quota", "q"]
        assert json.loads((await get(f"{BASE}?tree=other"))[1]) == {}
        assert await get(f"{BASE}/none") == (404, "cannot find quota none")
        for path in ("/debug/quota", BASE):
            assert (await get(path, token=None))[0] in (401, 403)

        # The explanation of the second one names what is missing and who has it.
        waiting = "second" if _placed(embedded, "first") else "first"
        explained = json.loads((await get(f"/debug/explain?pod=default/{waiting}"))[1])
        assert explained["rejectedBy"] == "ElasticQuota"
        (dimension,) = explained["refusal"]["dimensions"]
        assert (dimension["resource"], dimension["missing"]) == ("cpu", "1")
        assert [holder["amount"] for holder in dimension["heldBy"]] == ["1500m"]


def _placed(embedded, name):
    return bool(embedded.get("Pod", name)["spec"].get("nodeName"))


async def test_without_the_plugin_there_are_none():
    async with serving(embedded_with_users()) as running:
        assert (await running.client.get("/debug/quota"))[0] == 404
        assert (await running.client.get(BASE))[0] == 404
