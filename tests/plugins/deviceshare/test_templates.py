"""Templates of shared GPUs: one ConfigMap of the API server is read, and no other (deviceshare spec 2.4)."""

import asyncio

import pytest

from koordsched.cluster.builtinkinds import CONFIG_MAPS
from koordsched.plugins.deviceshare.templates import Templates, TemplatesError, parse
from koordsched.plugins.shared.devices.resources import GPU, INDEX, NAMES
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.virtualtime import run

TEXT = """
huawei-Ascend-310P:
  vir01: {koordinator.sh/gpu-memory: 3Gi, huawei.com/npu-core: 1, huawei.com/npu-cpu: 1, huawei.com/npu-dvpp: 12}
  vir02: {koordinator.sh/gpu-memory: 6Gi, huawei.com/npu-core: 2, huawei.com/npu-cpu: 2, huawei.com/npu-dvpp: 25}
"""
VIR01 = {"koordinator.sh/gpu-memory": 3 << 30, "huawei.com/npu-core": 1, "huawei.com/npu-cpu": 1}
POINTS = ("preFilter", "filter", "score", "reserve", "preBind")
CONFIG = {
    **DEFAULT_CONFIG,
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {point: {"enabled": [{"name": "DeviceShare"}]} for point in POINTS},
        }
    ],
}


def amounts(**given):
    found = [0] * len(NAMES[GPU])
    for name, amount in given.items():
        found[INDEX[name]] = amount
    return tuple(found)


def of(text):
    templates = Templates()
    templates.replace(parse(text))
    return templates


def test_a_template_matches_exactly():
    templates = of(TEXT)
    wanted = {**VIR01, "huawei.com/npu-dvpp": 12}
    assert templates.of("huawei", "Ascend-310P", amounts(**wanted)) == ["vir01"]
    assert templates.of("huawei", "Ascend-910", amounts(**wanted)) == []
    assert templates.matched(amounts(**wanted))
    assert not templates.matched(amounts(**VIR01))
    assert not templates.matched(amounts(**{**wanted, "huawei.com/npu-dvpp": 13}))


@pytest.mark.parametrize(
    "text",
    ["[", "- a", "m: [1]", "m: {t: 1}", "m: {t: {koordinator.sh/gpu-memory: lots}}", "m: {t: {a: {b: c}}}"],
)
def test_what_cannot_be_read_is_said(text):
    with pytest.raises(TemplatesError, match=r"^data\.yaml: "):
        parse(text)


def test_only_changes_count():
    templates = of(TEXT)
    assert not templates.replace(parse(TEXT))
    assert templates.serial == 1
    assert templates.replace({})
    assert templates.serial == 2


def config_map(text, name="gpu-shared-resource-templates", namespace="koordinator-system"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"data.yaml": text},
    }


def test_the_config_map_is_followed_over_the_api():
    async def main():
        embedded = Embedded()
        for namespace in ("koordinator-system", "other"):
            embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        embedded.insert(config_map("m: {t: {huawei.com/npu-core: 7}}", namespace="other"))
        async with scheduler_on(embedded, CONFIG) as running:
            cluster = running.scheduler.cluster
            templates = running.scheduler.profiles["default-scheduler"].plugins["DeviceShare"].templates
            seen = [templates.matched(amounts(**{"huawei.com/npu-core": 7}))]
            embedded.insert(config_map(TEXT))
            await asyncio.sleep(1)
            wanted = amounts(**VIR01, **{"huawei.com/npu-dvpp": 12})
            seen.append(templates.matched(wanted))
            resource = embedded.resource("ConfigMap")
            record = embedded.registry.record(resource, "koordinator-system", "gpu-shared-resource-templates")
            embedded.registry.replace_record(resource, record, {**record.obj(), "data": {"data.yaml": "["}})
            await asyncio.sleep(1)
            seen.append(templates.matched(wanted))  # what cannot be read leaves them as they were
            embedded.registry.delete(resource, "koordinator-system", "gpu-shared-resource-templates")
            await asyncio.sleep(1)
            seen.append(templates.matched(wanted))
            return seen, [meta.namespace for meta in cluster.objects.of(CONFIG_MAPS).metadata()]

    seen, kept = run(main())
    assert seen == [False, True, True, False]
    assert kept == []
