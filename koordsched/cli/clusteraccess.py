"""A cluster as kubectl would reach it: which kubeconfig and context, and the way to its API server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from koordsched.cli.objectfiles import InputError
from koordsched.client import kubeconfig as files
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ConnectionConfigError
from koordsched.client.network import NetworkTransport

_IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """`kubeconfig`: a path, or several as in $KUBECONFIG; "" for the service account of the pod that we run in."""

    kubeconfig: str
    context: str | None

    @classmethod
    def of_flags(cls, kubeconfig: str | None, context: str | None) -> ClusterAccess:
        """What kubectl would take with these flags. Raises InputError if there is none."""
        path = kubeconfig or files.usual_path(os.environ, Path.home())
        if not path and "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise InputError("there is no kubeconfig: use --kubeconfig FILE, set KUBECONFIG, or create ~/.kube/config")
        return cls(path, context)

    def namespace(self) -> str:
        """The namespace that commands use if none is given. Raises InputError."""
        try:
            if self.kubeconfig:
                return files.namespace_of(self.kubeconfig, self.context)
            return _IN_CLUSTER_NAMESPACE.read_text().strip()
        except ConnectionConfigError as error:
            raise InputError(str(error)) from error
        except OSError:
            return "default"

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[NetworkTransport]:
        """The way to the API server. Raises InputError if the settings cannot be used."""
        try:
            opened = await NetworkTransport.open(SystemClock(), kubeconfig=self.kubeconfig, context=self.context)
        except ConnectionConfigError as error:
            raise InputError(str(error)) from error
        try:
            yield opened
        finally:
            await opened.close()
