"""Credential plugins of kubeconfig files (`users[].user.exec`, client.authentication.k8s.io).

What to run is read by kubernetes-asyncio. It is run here because one that hangs has to be ended: while an identity
provider is away, every renewal would leave a process behind.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import Any

from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.kube_config import ConfigNode

TIMEOUT = 60.0
"""Seconds a plugin may take."""


async def credentials(section: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """The `status` of the ExecCredential that the plugin of an `exec` section prints.

    `directory`: of the kubeconfig, where a relative path starts; a bare name is looked up in PATH. Raises
    ConfigException, and OSError if it cannot be run.
    """
    plugin = ExecProvider(ConfigNode("exec", dict(section)))
    if os.sep in plugin.args[0]:
        plugin.args[0] = os.path.join(directory, plugin.args[0])
    output = await _run(plugin)
    try:
        said = json.loads(output)
    except ValueError as error:
        raise ConfigException(f"exec: its output is not JSON: {error}") from error
    if not isinstance(said, dict) or not isinstance(said.get("status"), dict):
        raise ConfigException("exec: its output is not an ExecCredential with a status")
    if said.get("apiVersion") != plugin.api_version:
        raise ConfigException(f"exec: its output is of {said.get('apiVersion')}, expected {plugin.api_version}")
    status: dict[str, Any] = said["status"]
    return status


def as_user(status: Mapping[str, Any]) -> dict[str, str]:
    """The same credentials as a kubeconfig's user has them. Raises ConfigException if there are none."""
    user: dict[str, str] = {}
    if token := status.get("token"):
        user["token"] = str(token)
    if certificate := status.get("clientCertificateData"):
        if not (key := status.get("clientKeyData")):
            raise ConfigException("exec: a certificate without its key (clientKeyData)")
        for name, text in (("client-certificate-data", certificate), ("client-key-data", key)):
            user[name] = base64.b64encode(str(text).encode()).decode()
    if not user:
        raise ConfigException("exec: neither token nor clientCertificateData in the status")
    return user


async def _run(plugin: ExecProvider) -> bytes:
    """What it prints. It has come to its end when this returns or raises, cancelled or not."""
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    process = await asyncio.create_subprocess_exec(
        *plugin.args, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            output, complaint = await process.communicate()
    except TimeoutError as error:
        raise ConfigException(f"exec: no credentials within {TIMEOUT:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = complaint.decode(errors="replace").strip()
        raise ConfigException(f"exec: process returned {process.returncode}{'. ' if text else ''}{text}")
    return output
