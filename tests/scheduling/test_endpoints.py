"""What the daemon's endpoints say, and to whom."""

import asyncio
import json
import re
import socket
import ssl
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from koordsched import config
from koordsched.cli import endpoints
from koordsched.cli.endpoints import metric_options
from koordsched.cli.explain import explain as explain_command
from koordsched.cli.simulate import simulate
from koordsched.client.errors import NotSent
from koordsched.config.options import Authentication, Authorization, InsecureServing, Metrics, SecureServing
from koordsched.engine.explain import Explanation, explain
from koordsched.observability.metric_options import MetricOptionError
from koordsched.observability.servingtls import ServingError, self_signed
from koordsched.scheduling.answer import Answer
from tests.embedded import Embedded
from tests.observability.certificates import NOW, Authority
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, free_port, serving, unverified
from tests.waiting import until

MINIMAL = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def is_bound(embedded, name):
    return lambda: bool(embedded.get("Pod", name)["spec"].get("nodeName"))


def is_rejected(embedded, name):
    return lambda: any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in embedded.get("Pod", name)["status"].get("conditions", [])
    )


# --- who may ask what ---------------------------------------------------------------------------

HEALTH = ("/healthz", "/livez", "/readyz")
PROTECTED = (
    "/healthz/ping",
    "/metrics",
    "/metrics/slis",
    "/metrics/resources",
    "/configz",
    "/statusz",
    "/flagz",
    "/debug/decisions",
    "/debug/pending",
    "/debug/overcommitment",
    "/debug/explain?pod=default/x",
    "/debug/snapshot",
    "/debug/stacks",
    "/",
)


async def test_only_health_is_for_everyone():
    async with serving(embedded_with_users()) as running:
        get = running.client.get
        for path in HEALTH:
            assert await get(path, token=None) == (200, "ok")
        for path in PROTECTED:
            answers = [(await get(path, token=token))[0] for token in (None, "nobody", "mallory")]
            assert answers == [403, 401, 403], path
            assert (await get(path, token="alice"))[0] in (200, 404), path


async def test_plain_port_shows_health_and_metrics_only():
    async with serving(embedded_with_users()) as running:
        seen = {path: (await running.client.get(path, None, plain=True))[0] for path in (*HEALTH, *PROTECTED)}
        assert {path for path, status in seen.items() if status == 200} == {
            *HEALTH, "/healthz/ping", "/metrics", "/metrics/slis",
        }  # fmt: skip
        assert set(seen.values()) == {200, 404}


async def test_always_allowed_paths_are_a_flag():
    authorization = Authorization(always_allow_paths=("/livez", "/metrics*"))
    async with serving(embedded_with_users(), authorization=authorization) as running:
        statuses = [
            (await running.client.get(path, None))[0] for path in ("/livez", "/metrics", "/metrics/slis", "/healthz")
        ]
        assert statuses == [200, 200, 200, 403]


async def test_ports_can_be_switched_off():
    off = SecureServing(port=0)
    async with serving(Embedded(), secure_serving=off) as running:
        assert len(running.ports) == 1
    async with serving(Embedded(), secure_serving=off, insecure_serving=InsecureServing(port=0)) as running:
        assert running.ports == set()


# --- readiness ----------------------------------------------------------------------------------


async def test_readiness_names_the_missing_resource_and_why():
    reachable = asyncio.Event()

    async def fault(call, proceed):
        if call.path == "/api/v1/nodes" and not reachable.is_set():
            raise NotSent("no route to host")
        return await proceed()

    async with serving(embedded_with_users(), fault=fault, synced=False) as running:
        get, watches = running.client.get, running.scheduler.watches
        await until(lambda: watches.missing() == ["/api/v1/nodes"] and watches.problems, "everything else listed")
        assert await get("/healthz", None) == (200, "ok")
        assert await get("/readyz", None) == (
            500,
            "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\n"
            "[-]watch-nodes failed: reason withheld\nreadyz check failed\n",
        )
        assert await get("/readyz/sched-handler-sync") == (
            500,
            "internal server error: handlers are not fully synchronized: /api/v1/nodes (failing: no route to host)\n",
        )
        reachable.set()
        await running.scheduler.wait_synced()
        assert await get("/readyz", None) == (200, "ok")


async def test_readiness_ends_with_the_order_to_stop_and_election_counts():
    complaint: list[str] = []
    elector = SimpleNamespace(check=lambda: complaint[0] if complaint else None, is_leader=lambda: not complaint)
    async with serving(embedded_with_users(), elector=elector) as running:
        get = running.client.get
        assert (await get("/readyz?verbose", None))[1].splitlines()[:2] == ["[+]leaderElection ok", "[+]shutdown ok"]
        running.stopping = True
        assert await get("/readyz/shutdown") == (500, "internal server error: process is shutting down\n")
        assert await get("/healthz", None) == (200, "ok")
        complaint.append("failed election to renew leadership on lease kube-scheduler")
        assert await get("/healthz/leaderElection") == (500, f"internal server error: {complaint[0]}\n")
        assert await get("/livez", None) == (200, "ok")


# --- metrics ------------------------------------------------------------------------------------


async def test_resource_metrics_are_the_leaders():
    leads = SimpleNamespace(value=False)
    elector = SimpleNamespace(check=lambda: None, is_leader=lambda: leads.value)
    embedded = embedded_with_users()
    embedded.insert(node("alder"))
    embedded.insert(pod("p", container(cpu="1500m"), on="alder"))
    embedded.insert(pod("big", container(cpu="99")))
    async with serving(embedded, elector=elector) as running:
        assert await running.client.get("/metrics/resources") == (200, "")
        leads.value = True
        text = (await running.client.get("/metrics/resources"))[1]
        lines = {line for line in text.splitlines() if line.startswith("kube_pod_resource_request{")}
        labels = 'scheduler="default-scheduler",priority="0",resource="cpu",unit="cores"'
        assert lines == {
            f'kube_pod_resource_request{{namespace="default",pod="p",node="alder",{labels}}} 1.5',
            f'kube_pod_resource_request{{namespace="default",pod="big",node="",{labels}}} 99',
        }


async def test_metrics_of_a_scheduled_and_a_rejected_pod():
    embedded = embedded_with_users()
    for name in ("alder", "beech"):
        embedded.insert(node(name))
    async with serving(embedded) as running:
        embedded.insert(pod("p", container(cpu="1")))
        embedded.insert(pod("big", container(cpu="99")))
        await until(is_bound(embedded, "p"), "the binding")
        await until(is_rejected(embedded, "big"), "the rejection")
        first = running.scheduler.cluster.table.nodes[0]
        running.scheduler.node_handler.upsert(
            msgspec.structs.replace(
                first,
                metadata=msgspec.structs.replace(first.metadata, resource_version="999999"),
                status=msgspec.structs.replace(first.status, allocatable={"cpu": "5", "pods": "9"}),
            )
        )
        text = (await running.client.get("/metrics"))[1]
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        profile = 'profile="default-scheduler"'
        for point, plugin, count in (
            ("PreFilter", "NodeResourcesFit", 2),
            ("Filter", "TaintToleration", 2),
            ("Score", "NodeResourcesFit", 1),
            ("Score", "ImageLocality", 1),
            ("PreScore", "NodeResourcesFit", 1),
            # These said Skip.
            ("PreFilter", "NodeAffinity", 0),
            ("Filter", "NodeAffinity", 0),
            ("PreScore", "NodeAffinity", 0),
            ("Score", "NodeAffinity", 0),
            ("PreScore", "InterPodAffinity", 0),
            ("Score", "InterPodAffinity", 0),
            ("Score", "PodTopologySpread", 0),
        ):
            name = f'scheduler_plugin_evaluation_total{{extension_point="{point}",plugin="{plugin}",{profile}}}'
            assert float(values[name]) == count, name
        listed = [name for name in values if name.startswith("scheduler_plugin_evaluation_total")]
        (profile,) = config.resolve(config.load(json.dumps(MINIMAL))).profiles
        plugins = profile.plugins
        assert len(listed) == sum(map(len, (plugins.pre_filter, plugins.filter, plugins.pre_score, plugins.score)))
        for event, count in (("NodeAdd", 2), ("UnschedulablePodAdd", 2), ("AssignedPodAdd", 1)):
            assert int(values[f'scheduler_event_handling_duration_seconds_count{{event="{event}"}}']) == count
        for queue, count in (("active", 0), ("backoff", 0), ("unschedulable", 1), ("gated", 0)):
            assert float(values[f'scheduler_pending_pods{{queue="{queue}"}}']) == count, queue
        # An index passes over a pod that the node is still too small for.
        assert not [name for name in values if "hint_execution" in name and "NodeUpdateNodeAllocatable" in name]


METRIC_FLAGS = [
    (Metrics(disabled=("a", "b")), {"a", "b"}, {}),
    (Metrics(allow_labels=("m,l='x,y'", "m,k=z")), set(), {"m": {"l": {"x", "y"}, "k": {"z"}}}),
    (Metrics(show_hidden_for_version="1.35"), set(), {}),
]


@pytest.mark.parametrize("flags, disabled, allowed", METRIC_FLAGS)
def test_metric_flags(flags, disabled, allowed):
    options = metric_options(flags)
    assert (options.disabled, options.allowed) == (disabled, allowed)


def test_metric_labels_from_a_manifest(tmp_path):
    file = tmp_path / "labels.yaml"
    file.write_text("m,l: x,y\nn,k: z\n")
    assert metric_options(Metrics(allow_labels_manifest=str(file))).allowed == {
        "m": {"l": {"x", "y"}},
        "n": {"k": {"z"}},
    }


@pytest.mark.parametrize("content", ["- a", "{", None])
def test_bad_metric_manifests(tmp_path, content):
    file = tmp_path / "labels.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(MetricOptionError, match="--allow-metric-labels-manifest"):
        metric_options(Metrics(allow_labels_manifest=str(file)))


# --- pages --------------------------------------------------------------------------------------


async def test_configuration_status_flags_and_verbosity():
    async with serving(embedded_with_users()) as running:
        get = running.client.get
        shown = json.loads((await get("/configz"))[1])["componentconfig"]
        assert shown == config.configz(config.default_configuration())
        assert (await get("/flagz"))[1].endswith("\nconfig=/etc/scheduler.yaml\nv=2\n")
        assert "kube-scheduler statusz" in (await get("/statusz"))[1]
        assert await get("/debug/flags/v", method="PUT", data="5") == (
            200, "successfully set klog.logging.verbosity to 5\n",
        )  # fmt: skip
        assert (await get("/debug/flags/v", method="PUT", data="x"))[0] == 400
        assert running.verbosities == [5]


async def test_profiling_pages_are_a_setting_of_the_file():
    configuration = msgspec.structs.replace(config.default_configuration(), enable_profiling=False)
    async with serving(embedded_with_users(), configuration=configuration) as running:
        assert (await running.client.get("/debug/stacks"))[0] == 404
        assert (await running.client.get("/debug/flags/v", method="PUT", data="5"))[0] == 404
        assert (await running.client.get("/debug/decisions"))[0] == 200


async def test_explain_decisions_and_snapshot(tmp_path):
    embedded = embedded_with_users()
    for name in ("alder", "beech"):
        embedded.insert(node(name))
    async with serving(embedded) as running:
        get, scheduler = running.client.get, running.scheduler
        embedded.insert(pod("p", container(cpu="1")))
        embedded.insert(pod("big", container(cpu="99")))
        await until(is_bound(embedded, "p"), "the binding")
        await until(is_rejected(embedded, "big"), "the rejection")
        status, text = await get("/debug/explain?pod=default/big")
        assert status == 200
        answer = msgspec.json.decode(text, type=Explanation)
        (waiting,) = [each for each in scheduler.pending_pods() if each.name == "big"]
        assert answer == explain(scheduler.profiles["default-scheduler"], scheduler.cluster, waiting)
        placed = embedded.get("Pod", "p")["spec"]["nodeName"]
        await until(lambda: not scheduler.cluster.assumed, "the confirmation")
        of_placed = msgspec.json.decode((await get("/debug/explain?pod=default/p"))[1], type=Answer)
        assert (of_placed.node, of_placed.rejection) == (placed, None)
        assert of_placed.decision == next(scheduler.decisions.of("default/p"))
        of_waiting = msgspec.json.decode(text, type=Answer)
        assert (of_waiting.node, of_waiting.decision) == ("", None)
        assert of_waiting.rejection.message == answer.message
        assert (await get("/debug/explain?pod=default/none"))[0] == 404
        for bad in ("", "?pod=", "?pod=x", "?pod=a/b/c"):
            assert (await get(f"/debug/explain{bad}"))[0] == 400, bad
        (decision,) = json.loads((await get("/debug/decisions?pod=default/p"))[1])["decisions"]
        assert (decision["pod"], decision["node"], decision["feasible"]) == ("default/p", placed, 2)
        (refusal,) = json.loads((await get("/debug/decisions"))[1])["refusals"]
        assert (refusal["pod"], refusal["reason"], refusal["message"], refusal["plugins"]) == (
            "default/big", "Unschedulable", answer.message, ["NodeResourcesFit"],
        )  # fmt: skip
        assert json.loads((await get("/debug/decisions?limit=0"))[1]) == {"decisions": [], "refusals": []}
        assert (await get("/debug/decisions?limit=x"))[0] == 400
        listed = json.loads(await written(get, tmp_path))
        assert (listed["kind"], listed["apiVersion"]) == ("List", "v1")
        names = [thing["metadata"]["name"] for thing in listed["items"] if thing["kind"] in ("Node", "Pod")]
        assert sorted(names) == ["alder", "beech", "big", "p"]
        offline = await asyncio.to_thread(
            CliRunner().invoke, simulate, ["-f", str(tmp_path / "snapshot.json"), "-o", "json"]
        )
        (pending,) = [each for each in json.loads(offline.stdout)["pods"] if not each.get("node")]
        assert (pending["pod"], pending["message"]) == ("default/big", answer.message)


async def test_what_was_decided_is_shown():
    embedded = embedded_with_users()
    for name, cpu in (("alder", "4"), ("beech", "8")):
        embedded.insert(node(name, cpu=cpu))
    async with serving(embedded) as running:

        async def shown(key, *more):
            arguments = [key, "--server", running.client.server, "--token", "alice", "--insecure-skip-tls-verify"]
            result = await asyncio.to_thread(CliRunner().invoke, explain_command, [*arguments, *more])
            assert result.exit_code == 0, result.stderr
            return result.stdout

        embedded.insert(pod("p", container(cpu="6")))
        await until(is_bound(embedded, "p"), "the binding")
        text = await shown("p")
        assert text.startswith("Pod default/p, profile default-scheduler\nPlaced on beech, ")
        assert text.endswith(": 1 node feasible, which is taken without scoring.\n")
        embedded.insert(pod("q", container(cpu="1")))
        await until(is_bound(embedded, "q"), "the binding")
        lines = (await shown("q")).splitlines()
        (decision,) = running.scheduler.decisions.of("default/q")
        assert lines[1].endswith(f": 2 nodes feasible, total {decision.total}.")
        best, second = decision.top
        assert lines[3].split()[:2] == ["NODE", "TOTAL"]
        assert [line.split()[:2] for line in lines[4:6]] == [[each.node, str(each.total)] for each in (best, second)]
        assert json.loads(await shown("q", "-o", "json"))["decision"]["top"][0]["scores"] == best.scores
        # A pod that waits: what there is to say now, and the attempt that was made.
        embedded.insert(pod("big", container(cpu="99")))
        await until(is_rejected(embedded, "big"), "the rejection")
        text = await shown("big")
        assert "No node could run this pod, even if empty." in text
        assert re.search(r"\nLast refused \S+Z, attempt 1, first \S+Z, with the same message\.\n$", text)
        embedded.insert(node("cedar", cpu="1"))
        await until(lambda: running.scheduler.cluster.table.count == 3, "the node")
        text = await shown("big")
        assert re.search(r"\nLast refused \S+Z, attempt 1, first \S+Z:\n  Unschedulable: 0/2 nodes are ", text)
        # A pod that was on its node before this scheduler began.
        embedded.insert(pod("old", container(cpu="1"), on="alder"))
        await until(lambda: "uid-default-old" in running.scheduler.cluster.assigned, "the pod")
        assert "\nOn node alder. There is no record of the decision: " in await shown("old")


async def written(get, directory):
    """The snapshot, which is also left in a file."""
    text = (await get("/debug/snapshot"))[1]
    (directory / "snapshot.json").write_text(text)
    return text


# --- certificates -------------------------------------------------------------------------------


def client_with(certificate, key):
    context = unverified()
    context.load_cert_chain(certificate, key)
    return context


def published(authority):
    """Where clusters publish who signs client certificates."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": authority.pem.decode()},
    }


async def test_client_certificates_of_a_file(tmp_path):
    authority = Authority()
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(authority.pem)
    alice = client_with(*authority.client(tmp_path, "alice"))
    boss = client_with(*authority.client(tmp_path, "boss", "system:masters"))
    authentication = Authentication(skip_lookup=True, client_ca_file=str(bundle))
    async with serving(embedded_with_users(), authentication=authentication) as running:
        get = running.client.get
        assert (await get("/configz", None, tls=alice))[0] == 200
        assert (await get("/configz", None, tls=boss))[0] == 200
        assert (await get("/configz", None))[0] == 403


async def test_client_certificates_as_the_cluster_publishes_them(tmp_path):
    authority = Authority()
    embedded = embedded_with_users()
    embedded.insert(published(authority))
    alice = client_with(*authority.client(tmp_path, "alice"))
    authentication = Authentication(tolerate_lookup_failure=False)
    async with serving(embedded, authentication=authentication) as running:
        assert (await running.client.get("/configz", None, tls=alice))[0] == 200


async def test_an_authority_that_is_published_late_is_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_LOOKUP", 0.01)
    authority = Authority()
    embedded = embedded_with_users()
    alice = client_with(*authority.client(tmp_path, "alice"))
    async with serving(embedded, authentication=Authentication()) as running:
        assert (await running.client.get("/configz", None, tls=alice))[0] == 403
        embedded.insert(published(authority))
        await retried(lambda: running.client.get("/configz", None, tls=alice), 200)


async def test_certificate_files_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoints, "FILES_AGAIN", 0.01)
    files = {"crt": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}

    def renew(name):
        certificate, key = self_signed((name,), NOW)
        for suffix, content in (("key", key), ("crt", certificate)):
            fresh = tmp_path / f"fresh.{suffix}"
            fresh.write_bytes(content)
            fresh.replace(files[suffix])
        return ssl.create_default_context(cadata=certificate.decode())

    first = renew("first")
    port = free_port()
    secure = SecureServing(
        port=port, bind_address="127.0.0.1", tls_cert_file=str(files["crt"]), tls_private_key_file=str(files["key"])
    )

    async def trusts(context):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        except ssl.SSLError:
            return 0, "not trusted"
        writer.close()
        return 200, "trusted"

    async with serving(Embedded(), secure_serving=secure):
        assert (await trusts(first))[0] == 200
        second = renew("second")
        await retried(lambda: trusts(second), 200)
        assert (await trusts(first))[0] == 0


async def retried(ask, status, seconds=10.0):
    """Asks again until the answer has this status."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (answer := await ask())[0] != status:
        assert loop.time() < end, answer
        await asyncio.sleep(0.005)


async def test_other_certificates_for_other_names(tmp_path):
    authority = Authority()
    certificate, key = authority.client(tmp_path, "named.example.com")
    named = (tmp_path / "named.example.com.crt").read_text()
    flag = f"{certificate},{key}:named.example.com,*.wild.example.com"
    secure = SecureServing(port=free_port(), bind_address="127.0.0.1", tls_sni_cert_key=(flag,))
    async with serving(Embedded(), secure_serving=secure):
        seen = {}
        for name in ("named.example.com", "a.wild.example.com", "other.example.com", "localhost"):
            _, writer = await asyncio.open_connection("127.0.0.1", secure.port, ssl=unverified(), server_hostname=name)
            presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            seen[name] = ssl.DER_cert_to_PEM_cert(presented) == named
            writer.close()
        assert seen == {
            "named.example.com": True, "a.wild.example.com": True, "other.example.com": False, "localhost": False,
        }  # fmt: skip


def bad_settings(tmp_path):
    """(groups of options, what the message says)."""
    missing = str(tmp_path / "missing")
    garbage = tmp_path / "garbage"
    garbage.write_text("no certificate")
    secure = {"port": free_port(), "bind_address": "127.0.0.1"}
    return [
        ({"secure_serving": SecureServing(**secure, tls_cert_file=missing)}, "must be given together"),
        (
            {"secure_serving": SecureServing(**secure, tls_cert_file=missing, tls_private_key_file=missing)},
            "No such file",
        ),
        ({"secure_serving": SecureServing(**secure, tls_cipher_suites=("NULL",))}, "cipher suite 'NULL'"),
        ({"secure_serving": SecureServing(**secure, tls_sni_cert_key=("x",))}, "--tls-sni-cert-key: 'x'"),
        ({"authentication": Authentication(client_ca_file=missing)}, f"--client-ca-file {missing}: No such file"),
        ({"authentication": Authentication(client_ca_file=str(garbage))}, "client CA bundle cannot be read"),
        ({"authentication": Authentication(kubeconfig=missing)}, "No such file"),
        ({"authorization": Authorization(kubeconfig=missing)}, "No such file"),
        ({"authentication": Authentication(tolerate_lookup_failure=False)}, "the client CA cannot be read"),
    ]


async def test_settings_that_cannot_work_say_so(tmp_path):
    for groups, expected in bad_settings(tmp_path):
        with pytest.raises(ServingError) as refused:
            async with serving(embedded_with_users(), **groups):
                pass
        assert expected in str(refused.value), groups
        assert "\n" not in str(refused.value)


async def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        secure = SecureServing(port=port, bind_address="127.0.0.1")
        with pytest.raises(ServingError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*address already in use"):
            async with serving(embedded_with_users(), secure_serving=secure):
                pass
