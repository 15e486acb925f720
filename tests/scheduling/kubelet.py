"""Stands in for the kubelets: pods that terminate on a node are gone a while later."""

import asyncio


class Kubelet:
    """Watches an embedded cluster; `grace` seconds after a pod was told to go, it is gone."""

    def __init__(self, embedded, grace=2.0):
        self._embedded = embedded
        self._grace = grace
        self._seen = set()
        embedded.registry.subscribe(embedded.resource("Pod"), self._changed)

    def _changed(self, kind, old, new):
        pod = new or old
        uid = pod["metadata"]["uid"]
        if kind == "DELETED" or "deletionTimestamp" not in pod["metadata"] or uid in self._seen:
            return
        self._seen.add(uid)
        namespace, name = pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]
        asyncio.get_running_loop().call_later(self._grace, self._finish, namespace, name, uid)

    def _finish(self, namespace, name, uid):
        pod = self._embedded.get("Pod", name, namespace)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._embedded.registry.delete(self._embedded.resource("Pod"), namespace, name, grace_period_seconds=0)
