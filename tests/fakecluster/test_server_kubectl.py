"""What users do: kubectl against the embedded API server (no controllers, no nodes)."""

import asyncio
import json
import os
import random
import shutil
import subprocess
import threading

import pytest
import yaml

from koordsched.fakecluster.auth import ADMIN, Authenticator
from koordsched.fakecluster.clock import SystemClock
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.http import HttpServer
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.server import ApiServer
from koordsched.fakecluster.tls import self_signed

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
DEADLINE = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with TLS and a token, on loopback, in a thread of its own."""
    directory = tmp_path_factory.mktemp("server")
    started, stopping = threading.Event(), []

    async def serve():
        clock = SystemClock()
        api = ApiServer(new_cluster(clock, random.Random(3)), Authenticator({"secret": ADMIN}))
        http = HttpServer(api.start)
        context, authority = self_signed("127.0.0.1", clock.now())
        port = await http.start("127.0.0.1", 0, context)
        write_kubeconfig(directory / "config", kubeconfig(f"https://127.0.0.1:{port}", "secret", authority))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        started.set()
        await stop.wait()
        api.hub.close_all()
        await http.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(DEADLINE)
    yield directory
    stopping[0]()
    thread.join(DEADLINE)


class Kubectl:
    def __init__(self, directory, namespace):
        self._environment = {**os.environ, "KUBECONFIG": str(directory / "config"), "HOME": str(directory)}
        self._namespace = namespace

    def run(self, *arguments, stdin=None, code=0, out=False):
        """Standard output, or standard error where an error is expected and not `out`; checks the exit code."""
        done = subprocess.run(
            [KUBECTL, "-n", self._namespace, *arguments],
            input=stdin, capture_output=True, text=True, env=self._environment, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return (done.stderr if code and not out else done.stdout).strip()

    def __call__(self, line, **options):
        return self.run(*line.split(), **options)


@pytest.fixture
def kubectl(server, request):
    """kubectl in a namespace of the test's own."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:40].rstrip("-")
    Kubectl(server, "default").run("create", "namespace", name)
    return Kubectl(server, name)


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "nginx:1.2", resources: {requests: {cpu: 500m}}}
      - {name: side, image: "helper:1"}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec: {containers: [{name: c, image: "a:1", ports: [{containerPort: 80}]}]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s}
status: {capacity: {cpu: 4, memory: 8Gi, pods: 110}, conditions: [{type: Ready, status: "True"}]}
"""


def test_apply_twice_then_change(kubectl):
    assert kubectl("apply -f -", stdin=DEPLOYMENT) == "deployment.apps/web created"
    assert kubectl("apply -f -", stdin=DEPLOYMENT) == "deployment.apps/web unchanged"
    changed = DEPLOYMENT.replace("nginx:1.2", "nginx:1.3").replace('      - {name: side, image: "helper:1"}\n', "")
    if shutil.which("diff"):
        different = kubectl("diff -f -", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: 3"), code=1, out=True)
        assert "+  replicas: 3" in different
    assert kubectl("apply -f -", stdin=changed) == "deployment.apps/web configured"
    images = kubectl("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}")
    assert images == "nginx:1.3"
    assert kubectl("scale deploy web --replicas=5") == "deployment.apps/web scaled"
    assert kubectl("get deploy web -o jsonpath={.spec.replicas}/{.metadata.generation}") == "5/3"
    assert "Containers:" in kubectl("describe deployment web")
    refused = kubectl("apply -f -", stdin=DEPLOYMENT.replace("replicas", "replica"), code=1)
    assert 'strict decoding error: unknown field "spec.replica"' in refused
    wrong = kubectl(
        "apply -f -", stdin=DEPLOYMENT.replace("labels: {app: web}}\n    spec", "labels: {}}\n    spec"), code=1
    )
    assert "`selector` does not match template `labels`" in wrong


def test_server_side_apply(kubectl):
    assert kubectl("apply --server-side -f -", stdin=DEPLOYMENT) == "deployment.apps/web serverside-applied"
    more = DEPLOYMENT.replace("replicas: 2", "replicas: 7")
    refused = kubectl("apply --server-side --field-manager other -f -", stdin=more, code=1)
    assert 'conflict with "kubectl": .spec.replicas' in refused
    kubectl("apply --server-side --force-conflicts --field-manager other -f -", stdin=more)
    assert kubectl("get deploy web -o jsonpath={.spec.replicas}") == "7"


def test_create_and_look(kubectl):
    assert kubectl("create configmap cm --from-literal=a=b") == "configmap/cm created"
    assert "already exists" in kubectl("create configmap cm --from-literal=a=b", code=1)
    kubectl("create job j --image=a -- sleep 1")
    kubectl("create deployment d --image=nginx --replicas=2")
    kubectl("expose deployment d --port 80")
    kubectl("create pdb b --selector=app=d --min-available=1")
    kubectl("apply -f -", stdin=POD)
    assert kubectl("get pods -o name") == "pod/p"
    assert kubectl("get pods -l app!=a --no-headers") == ""
    assert kubectl("get pods --field-selector status.phase=Pending -o name") == "pod/p"
    head, row = kubectl("get pods -o wide").splitlines()
    assert head.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p", "0/1", "Pending", "0"]
    assert yaml.safe_load(kubectl("get pod p -o yaml"))["spec"]["schedulerName"] == "default-scheduler"
    assert json.loads(kubectl("get all -o json"))["kind"] == "List"
    assert kubectl("get job j -o jsonpath={.spec.completions}") == "1"
    assert "QoS Class:" in kubectl("describe pod p")
    assert "containerPort" in kubectl("explain pod.spec.containers.ports")
    assert kubectl("auth can-i create pods") == "yes"
    assert 'pods "none" not found' in kubectl("get pod none", code=1)
    assert "is hollow and runs no containers" in kubectl("logs p", code=1)
    assert "is hollow and runs no containers" in kubectl("exec p -- ls", code=1)


def test_change_and_delete(kubectl):
    kubectl("apply -f -", stdin=POD)
    assert kubectl("label pod p x=y") == "pod/p labeled"
    assert kubectl("annotate pod p x=y") == "pod/p annotated"
    patch = '{"spec":{"containers":[{"name":"c","image":"b:2"}]}}'
    kubectl.run("patch", "pod", "p", "-p", patch)
    assert kubectl("get pod p -o jsonpath={.spec.containers[0].image}") == "b:2"
    assert "pod updates may not change fields" in kubectl.run(
        "patch", "pod", "p", "-p", '{"spec":{"nodeName":"n"}}', code=1
    )
    operations = '[{"op":"replace","path":"/metadata/labels/x","value":"z"}]'
    kubectl.run("patch", "pod", "p", "--type=json", "-p", operations)
    assert kubectl("get pods -l x=z -o name") == "pod/p"
    assert kubectl("wait pod/p --for=jsonpath={.status.phase}=Pending --timeout=5s") == "pod/p condition met"
    assert kubectl("delete pod p") == 'pod "p" deleted'
    assert kubectl("get pods") == ""


def test_nodes(kubectl):
    kubectl("apply -f -", stdin=NODE % "n1")
    kubectl("taint node n1 k=v:NoSchedule")
    kubectl("cordon n1")
    assert kubectl("get node n1 --no-headers").split()[:2] == ["n1", "Ready,SchedulingDisabled"]
    assert kubectl("get node n1 -o jsonpath={.status.allocatable.cpu}/{.spec.taints[0].key}") == "4/k"
    kubectl("uncordon n1")
    kubectl(
        "apply -f -", stdin=POD.replace("containers:", "terminationGracePeriodSeconds: 0, nodeName: n1, containers:")
    )
    assert "Allocatable:" in kubectl("describe node n1")
    assert "node/n1 drained" in kubectl("drain n1 --force --timeout=20s")
    assert kubectl("get pods") == ""


def test_custom_resources(kubectl):
    from tests.fakecluster.test_server_customresources import definition, widget

    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition()}
    kubectl("apply -f -", stdin=json.dumps(crd))
    kubectl("wait crd/widgets.ex.com --for=condition=Established --timeout=5s")
    assert kubectl("apply -f -", stdin=json.dumps(widget())) == "widget.ex.com/w created"
    assert kubectl("apply -f -", stdin=json.dumps(widget())) == "widget.ex.com/w unchanged"
    assert kubectl("apply -f -", stdin=json.dumps(widget(mode="B"))) == "widget.ex.com/w configured"
    assert "spec.size in body should be greater" in kubectl("apply -f -", stdin=json.dumps(widget(size=0)), code=1)
    assert 'unknown field "spec.bogus"' in kubectl("apply -f -", stdin=json.dumps(widget(bogus=0)), code=1)
    kubectl("scale widget w --replicas=3")
    assert [c.split() for c in kubectl("get wd").splitlines()] == [["NAME", "SIZE", "READY"], ["w", "1"]]
    kubectl("delete crd widgets.ex.com")
    assert "could not find the requested resource" in kubectl("get widgets", code=1)


def test_watch(kubectl):
    watching = subprocess.Popen(
        [KUBECTL, "-n", kubectl._namespace, "get", "pods", "-w", "--no-headers"],
        stdout=subprocess.PIPE, text=True, env=kubectl._environment,
    )  # fmt: skip
    try:
        kubectl("apply -f -", stdin=POD)
        line = watching.stdout.readline()
        assert line.split()[:3] == ["p", "0/1", "Pending"]
    finally:
        watching.kill()
        watching.wait()


def test_wrong_token(server):
    kubectl = Kubectl(server, "default")
    assert "You must be logged in to the server" in kubectl("get pods --token=wrong", code=1)
