"""The recorded answers of Koordinator's own webhooks, replayed against the rules."""

import copy
import json
from pathlib import Path

import pytest

from koordsched.api.core import Pod
from koordsched.api.decoding import convert
from koordsched.api.quantity import nano_value
from koordsched.cluster.resources import effective_requests
from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.webhook.declared import DeclaredQuotas, Refused
from koordsched.plugins.elasticquota.webhook.defaults import filled_in
from koordsched.plugins.elasticquota.webhook.evaluation import admitted
from koordsched.plugins.elasticquota.webhook.pods import check_pod_create, kept_to_its_tree
from koordsched.plugins.elasticquota.webhook.quotas import Gates, QuotaRules

GOLDEN = Path(__file__).parents[1] / "controller" / "golden"
RECORDS = sorted(path.stem for path in GOLDEN.glob("*.json"))


def merged(thing, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(thing) if isinstance(thing, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Pods:
    def __init__(self, objects):
        self._pods = [obj for obj in objects if obj["kind"] == "Pod"]

    def labelled(self, quota):
        return sorted(
            pod["metadata"]["name"]
            for pod in self._pods
            if (pod["metadata"].get("labels") or {}).get(api.QUOTA_NAME) == quota
        )

    def any_in(self, namespace):
        return any(pod["metadata"]["namespace"] == namespace for pod in self._pods)


class Server:
    """What an API server with the webhooks does to a request."""

    def __init__(self, record):
        flags = ",".join(record["config"]["flags"])
        self.on = lambda gate: f"{gate}=true" in flags
        self.objects = {}
        for obj in record["objects"]:
            self.create(copy.deepcopy(obj))

    def quotas(self):
        found = [convert(obj, api.ElasticQuota) for obj in self.objects.values() if obj["kind"] == "ElasticQuota"]
        return DeclaredQuotas(found)

    def rules(self):
        gates = Gates(update_resource_key=self.on("ElasticQuotaEnableUpdateResourceKey"))
        return QuotaRules(self.quotas(), Pods(self.objects.values()), gates)

    def create(self, obj):
        meta = obj["metadata"]
        meta.setdefault("namespace", "default")
        if obj["kind"] == "ElasticQuota":
            quota = filled_in(convert(obj, api.ElasticQuota), self.quotas())
            self.rules().check_create(quota)
            meta["labels"], meta["annotations"] = quota.metadata.labels, quota.metadata.annotations
        elif obj["kind"] == "Pod":
            obj = self.admitted_pod(obj)
        self.objects[obj["kind"], meta["name"]] = obj

    def admitted_pod(self, obj):
        quotas, meta = self.quotas(), obj["metadata"]
        labels = meta.get("labels") or {}
        profiles = [
            convert(each, api.ElasticQuotaProfile)
            for each in self.objects.values()
            if each["kind"] == "ElasticQuotaProfile"
        ]
        if self.on("MultiQuotaTree"):
            obj = kept_to_its_tree(obj, quotas, profiles)
        parents = self.on("SupportParentQuotaSubmitPod")
        check_pod_create(meta["namespace"], meta["name"], labels, quotas, parents_take_pods=parents)
        if self.on("EnableQuotaAdmission"):
            self.count(quotas, meta["namespace"], labels.get(api.QUOTA_NAME, ""), obj)
        return obj

    def count(self, quotas, namespace, label, obj):
        found = quotas.of_pod(namespace, label)
        name = label or (found.name if found else "")
        objects = [quotas.objects[name]] if name in quotas.objects else []
        changed = admitted(name, objects, effective_requests(convert(obj, Pod).spec))
        if changed is not None:
            self.objects["ElasticQuota", name]["metadata"]["annotations"] = changed.metadata.annotations

    def patch(self, step):
        key = step["kind"], step["name"]
        before, after = self.objects[key], merged(self.objects[key], step["merge"])
        self.rules().check_update(convert(after, api.ElasticQuota), convert(before, api.ElasticQuota))
        self.objects[key] = after

    def delete(self, step):
        if step["kind"] == "ElasticQuota":
            self.rules().check_delete(step["name"])
        del self.objects[step["kind"], step["name"]]


def by_value(shown):
    return {name: nano_value(quantity) for name, quantity in (shown or {}).items()}


def check_object(obj, expected):
    meta = obj["metadata"]
    assert (meta.get("labels") or {}) == expected["labels"]
    if obj["kind"] == "Pod":
        assert obj["spec"].get("affinity") == expected.get("affinity")
        return
    annotations = meta.get("annotations") or {}
    assert annotations.keys() == expected["annotations"].keys()
    for key, text in expected["annotations"].items():
        given, wanted = json.loads(annotations[key]), json.loads(text)
        assert (by_value(given) == by_value(wanted)) if isinstance(wanted, dict) else given == wanted, key
    for part in ("min", "max"):
        assert by_value(obj["spec"].get(part)) == by_value(expected["spec"].get(part))


def refusal_of(server, step):
    """The text of the refusal, or None."""
    try:
        if "create" in step:
            server.create(copy.deepcopy(step["create"]))
        elif "patch" in step:
            server.patch(step["patch"])
        else:
            server.delete(step["delete"])
    except Refused as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("name", RECORDS)
def test_answers(name):
    record = json.loads((GOLDEN / f"{name}.json").read_text())
    objects = [obj for obj in record["objects"] if obj["kind"] != "ElasticQuotaProfile"]
    server = Server({**record, "objects": objects})
    for profile in (obj for obj in record["objects"] if obj["kind"] == "ElasticQuotaProfile"):
        server.objects["ElasticQuotaProfile", profile["metadata"]["name"]] = profile
    # What controllers made of the objects before the first step.
    for key, made in (record["expected"].get("objects") or {}).items():
        kind, _, quota = key.rpartition("/")
        if kind == "ElasticQuota":
            metadata = {"name": quota, "namespace": "default", "labels": made["labels"]}
            metadata["annotations"] = made["annotations"]
            server.objects[kind, quota] = {"kind": kind, "metadata": metadata, "spec": made["spec"]}
    assert len(record["steps"]) == len(record["expected"]["steps"])
    for step, expected in zip(record["steps"], record["expected"]["steps"], strict=True):
        answer = expected["answer"]
        refusal = refusal_of(server, step)
        assert answer["allowed"] == (refusal is None), f"{step}: {refusal}"
        if refusal is not None:
            text = answer["message"].partition("denied the request: ")[2]
            # The words of the JSON parser are its own.
            head, json_error, _ = text.partition("unmarshal sharedWeight failed:")
            assert refusal.startswith(head + json_error) if json_error else refusal == text
            continue
        for key, wanted in (expected.get("objects") or {}).items():
            kind, _, rest = key.partition("/")
            obj = server.objects[kind, rest.rpartition("/")[2]]
            check_object(obj, wanted)
