"""What goes into a journal, and what does not: nothing that the scheduler does not read."""

import asyncio
import base64
from dataclasses import replace

import pytest

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.journal.header import Setting, header_maker, setting_of
from koordsched.journal.records import Upsert, encode
from koordsched.journal.redaction import UNREAD, is_read, redacted
from koordsched.plugins.elasticquota.kinds import PREFIX
from koordsched.plugins.shared.volumes.claims import BIND_COMPLETED, CLASS_ANNOTATION
from koordsched.plugins.volumebinding.assumedvolumes import BOUND_BY_CONTROLLER
from koordsched.plugins.volumebinding.claims import SELECTED_NODE
from koordsched.plugins.volumebinding.migration import MIGRATED_PLUGINS
from tests.embedded import Embedded
from tests.journal.recording import Recorded
from tests.plugins.objects import container, node, pod
from tests.virtualtime import VirtualClock, run

READ = [SELECTED_NODE, MIGRATED_PLUGINS, BOUND_BY_CONTROLLER, BIND_COMPLETED, CLASS_ANNOTATION, f"{PREFIX}namespaces"]
UNREAD_KEYS = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "example.com/password",
    "koordinator.sh.example.com/password",
    "password",
    "",
]


@pytest.mark.parametrize("key", READ)
def test_annotations_that_plugins_read_are_kept(key):
    assert is_read(key)


@pytest.mark.parametrize("key", UNREAD_KEYS)
def test_other_annotations_are_not(key):
    assert not is_read(key)


def annotated(**annotations):
    return convert({"metadata": {"name": "n", "annotations": annotations}}, core.Node)


def test_a_mark_says_that_something_changed_and_not_what():
    kept = {BIND_COMPLETED: "yes"}
    one, other = annotated(secret="hunter2", **kept), annotated(secret="hunter3", **kept)
    marks = [redacted(thing, marked=True).metadata.annotations[UNREAD] for thing in (one, one, other)]
    assert marks[0] == marks[1] != marks[2]
    assert redacted(one).metadata.annotations == kept
    assert redacted(annotated(**kept), marked=True) == annotated(**kept)
    assert redacted(one, marked=True).metadata.annotations == {**kept, UNREAD: marks[0]}


SECRET = "hunter2"


def test_secrets_of_pods_and_nodes_are_not_in_the_journal():
    async def main():
        embedded = Embedded()
        machine = node("n0")
        machine["metadata"]["annotations"] = {"example.com/token": SECRET}
        embedded.insert(machine)
        recorded = Recorded(embedded)
        async with recorded.running():
            one = container(cpu="1")
            one |= {"env": [{"name": "PASSWORD", "value": SECRET}], "command": ["run", SECRET], "args": [SECRET]}
            made = pod("p", one, volumes=[{"name": "v", "secret": {"secretName": SECRET}}])
            made["metadata"]["annotations"] = {"example.com/token": SECRET}
            embedded.insert(made)
            await asyncio.sleep(2)
        return recorded.journal

    journal = run(main())
    assert any(isinstance(record, Upsert) and b"n0" in bytes(record.object) for record in journal.records())
    assert SECRET.encode() not in b"".join(data for segment in journal.segments for data in segment)


EXTENDED = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: /root/{SECRET}}}
podInitialBackoffSeconds: 3
extenders:
- urlPrefix: https://user:{SECRET}@extender.test/x
  filterVerb: filter
  enableHTTPS: true
  tlsConfig: {{keyData: {base64.b64encode(SECRET.encode()).decode()}, certData: Zm9v, caFile: /etc/{SECRET}}}
"""


async def test_the_configuration_is_recorded_without_credentials():
    gates = config.FeatureGates.parse(["MultiQuotaTree=true"])
    resolved = config.resolve(config.load(EXTENDED, gates=gates), gates=gates)
    setting = Setting(resolved, 60.0, True, ("kube-system", "koordsched-0"))
    header = header_maker(setting, "run", VirtualClock(asyncio.get_running_loop()))(0, 0)
    recorded = encode(header).decode("latin-1")
    assert SECRET not in recorded
    assert base64.b64encode(SECRET.encode()).decode() not in recorded
    assert "https://user:CLASSIFIED@extender.test/x" in recorded
    again = setting_of(header, config.IN_TREE)
    assert header.extended
    (extender,) = again.resolved.extenders
    assert (extender.filter_verb, extender.enable_https, extender.tls_config) == ("filter", True, None)
    assert again.resolved.features == resolved.features
    assert again.resolved.profiles == resolved.profiles
    assert again.resolved.pod_initial_backoff == 3.0
    assert again == replace(setting, resolved=again.resolved)
