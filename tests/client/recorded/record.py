"""Records what an API server says of the same objects in JSON and in protobuf.

    python -m tests.client.recorded.record --kubeconfig FILE

Creates `objects.yaml` on it (an empty cluster without admission that changes pods), writes `answers.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from pathlib import Path
from typing import Any

import orjson
import yaml

from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.client.clock import SystemClock
from koordsched.client.errors import raise_for_status
from koordsched.client.network import NetworkTransport
from koordsched.client.transport import JSON

HERE = Path(__file__).parent
NAMESPACE = "demo"
CLUSTER_WIDE = {
    "Namespace": "api/v1/namespaces",
    "Node": "api/v1/nodes",
    "PersistentVolume": "api/v1/persistentvolumes",
    "StorageClass": "apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "apis/storage.k8s.io/v1/csidrivers",
    "VolumeAttachment": "apis/storage.k8s.io/v1/volumeattachments",
    "RuntimeClass": "apis/node.k8s.io/v1/runtimeclasses",
    "PriorityClass": "apis/scheduling.k8s.io/v1/priorityclasses",
}
NAMESPACED = {
    "Pod": "api/v1/pods",
    "Service": "api/v1/services",
    "ReplicationController": "api/v1/replicationcontrollers",
    "PersistentVolumeClaim": "api/v1/persistentvolumeclaims",
    "ReplicaSet": "apis/apps/v1/replicasets",
    "StatefulSet": "apis/apps/v1/statefulsets",
    "PodDisruptionBudget": "apis/policy/v1/poddisruptionbudgets",
    "CSIStorageCapacity": "apis/storage.k8s.io/v1/csistoragecapacities",
}


def collection(kind: str) -> str:
    """Where objects of the kind are created."""
    if kind in CLUSTER_WIDE:
        return f"/{CLUSTER_WIDE[kind]}"
    api, _, plural = NAMESPACED[kind].rpartition("/")
    return f"/{api}/namespaces/{NAMESPACE}/{plural}"


async def create(transport: NetworkTransport, manifest: dict[str, Any]) -> None:
    """Creates an object, with its status."""
    path = collection(manifest["kind"])
    created = raise_for_status(await transport.request("POST", path, body=orjson.dumps(manifest)))
    if "status" in manifest:
        obj = orjson.loads(created.body)
        obj["status"] = {**obj.get("status", {}), **manifest["status"]}
        target = f"{path}/{manifest['metadata']['name']}/status"
        raise_for_status(await transport.request("PUT", target, body=orjson.dumps(obj)))


async def record(kubeconfig: str) -> None:
    """Creates the objects, lists them, watches the pods, asks for one that does not exist."""
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=kubeconfig)
    answers: dict[str, dict[str, str]] = {}

    async def ask(name: str, path: str, **query: str) -> None:
        for encoding, accept in (("json", JSON), ("protobuf", MEDIA_TYPE)):
            answer = await transport.request("GET", path, query=query, headers={"Accept": accept})
            answers.setdefault(name, {})[encoding] = base64.b64encode(answer.body).decode()

    try:
        for manifest in yaml.safe_load_all((HERE / "objects.yaml").read_text()):
            await create(transport, manifest)
        await transport.request("DELETE", f"{collection('Pod')}/leaving")
        for kind in (*CLUSTER_WIDE, *NAMESPACED):
            if kind not in ("RuntimeClass", "PriorityClass"):
                path = collection(kind)
                await ask(path.rpartition("/")[2], path)
        initial = {"allowWatchBookmarks": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        await ask("watch", collection("Pod"), watch="1", timeoutSeconds="2", **initial)
        await ask("missing", f"{collection('Pod')}/none")
    finally:
        await transport.close()
    (HERE / "answers.json").write_bytes(orjson.dumps(answers, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    asyncio.run(record(parser.parse_args().kubeconfig))
