"""The address of the API server and our credentials: read from a kubeconfig file or from the pod we run in.

The formats and the authentication methods (token, token file, client certificate, auth provider, basic) are
kubernetes-asyncio's; this module adds clear errors, and when to read everything again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.dateutil import parse_rfc3339
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes_asyncio.config.kube_config import KubeConfigLoader

from koordsched.client import execplugin
from koordsched.client.clock import Clock
from koordsched.client.errors import ConnectionConfigError
from koordsched.client.kubeconfig import current_context, load

TOKEN_FILE_RELOAD = 60.0
"""Seconds between readings of a token file: bound service account tokens are replaced on disk every hour or so."""

CERTIFICATE_RELOAD = 300.0
"""Seconds between readings of client certificate files (client-go transport/cert_rotation.go uses the same)."""

PROVIDER_TIMEOUT = 60.0
"""Seconds that an identity provider may take."""

EXEC_RENEW_SHARE = 0.8
"""Share of an exec credential's life after which it is renewed, ahead of its expiry."""

SHORTEST_RENEWAL = 10.0
"""Seconds between two renewals at least, whatever expiry a credential plugin claims."""


@dataclass(frozen=True)
class Settings:
    """One reading of the connection settings. File names are paths, `authorization` is a whole header value."""

    server: SplitResult
    authorization: str = field(default="", repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    reload_after: float | None = None
    """Seconds until the settings should be read again; None: only when the server refuses them."""
    origin: str = "settings"
    """Where they were read, for messages."""

    def tls_fingerprint(self) -> bytes:
        """Changes when anything that goes into the TLS context changes, contents of files included."""
        digest = hashlib.sha256(repr((self.verify, self.server_name)).encode())
        for name in (self.ca_file, self.cert_file, self.key_file):
            digest.update(Path(name).read_bytes() if name else b"-")
        return digest.digest()

    def tls_context(self) -> ssl.SSLContext | None:
        """The context for https servers, None for http. Raises ConnectionConfigError."""
        if self.server.scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            # Newer Pythons demand extensions that many cluster CAs lack and that Go's verification does not ask for.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
            raise ConnectionConfigError(f"{self.origin}: cannot load the certificates ({named}): {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


Source = Callable[[], Awaitable[Settings]]
"""Reads the settings anew. Raises ConnectionConfigError."""


def source_of(
    *,
    clock: Clock,
    kubeconfig: str = "",
    context: str | None = None,
    master: str = "",
    environ: Mapping[str, str] = os.environ,
    token_file: str = SERVICE_TOKEN_FILENAME,
    ca_file: str = SERVICE_CERT_FILENAME,
) -> Source:
    """Chooses where settings come from, as client-go's BuildConfigFromFlags does.

    A kubeconfig file, its server replaced by `master` if given; `master` alone without credentials; neither: the
    service account of the pod we run in.
    """
    if kubeconfig:

        async def from_kubeconfig() -> Settings:
            return await read_kubeconfig(kubeconfig, context, master, clock)

        return from_kubeconfig
    if master:

        async def from_master() -> Settings:
            return Settings(server=parse_server(master, tls=False))

        return from_master

    async def from_pod() -> Settings:
        return read_in_cluster(environ, token_file, ca_file)

    return from_pod


def parse_server(address: str, tls: bool) -> SplitResult:
    """The server's URL; without a scheme it is https if `tls`, else http. Raises ConnectionConfigError."""
    if "://" not in address:
        address = f"{'https' if tls else 'http'}://{address}"
    try:
        url = urlsplit(address)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError as error:
        raise ConnectionConfigError(f"server address {address!r}: {error}") from error
    if not usable:
        raise ConnectionConfigError(f"server address {address!r} is not of the form http(s)://host:port")
    return url._replace(path=url.path.rstrip("/"), query="", fragment="")


async def read_kubeconfig(path: str, context: str | None, master: str, clock: Clock) -> Settings:
    """Reads a kubeconfig file, or several (see `kubeconfig.load`). Raises ConnectionConfigError."""
    document = load(path)
    wanted = current_context(document, path, context)
    user = _user_of(document, wanted)
    directory = _directory_of(path)
    plugin = user.get("exec")
    where = f"kubeconfig {path}"
    if isinstance(plugin, dict):
        where += f", credential plugin {plugin.get('command')}"
    configuration = Configuration(host="")
    expiry = None
    try:
        if isinstance(plugin, dict):
            status = await execplugin.credentials(plugin, directory)
            del user["exec"]
            user.update(execplugin.as_user(status))
            expiry = parse_rfc3339(status["expirationTimestamp"]) if "expirationTimestamp" in status else None
        loader = KubeConfigLoader(document, wanted, config_base_path=directory)
        async with asyncio.timeout(PROVIDER_TIMEOUT):
            await loader.load_and_set(configuration)
    except TimeoutError as error:
        raise ConnectionConfigError(f"{where}: no credentials within {PROVIDER_TIMEOUT:g} s") from error
    except AssertionError as error:
        raise ConnectionConfigError(f"kubeconfig {path}: context {wanted!r} or its cluster is empty") from error
    except Exception as error:
        # The loader looks into a document of another form than it expects without checking, and passes on whatever
        # befalls it on its way to an identity provider. Requests wait for the outcome: nothing else may reach them.
        raise ConnectionConfigError(f"{where}: {str(error) or type(error).__name__}") from error
    address = master or configuration.host
    if not address:
        raise ConnectionConfigError(f"kubeconfig {path}: the cluster of context {wanted!r} names no server")
    reload_after: float | None = None
    if expiry is not None:
        reload_after = max((expiry.timestamp() - clock.wall()) * EXEC_RENEW_SHARE, SHORTEST_RENEWAL)
    elif "tokenFile" in user:
        reload_after = TOKEN_FILE_RELOAD
    elif "client-certificate" in user:
        reload_after = CERTIFICATE_RELOAD
    try:
        server = parse_server(address, tls=bool(configuration.ssl_ca_cert or configuration.cert_file))
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"kubeconfig {path}: {error}") from error
    return Settings(
        server=server,
        authorization=_header_value(configuration.api_key.get("BearerToken", ""), f"kubeconfig {path}"),
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        reload_after=reload_after,
        origin=f"kubeconfig {path}",
    )


def read_in_cluster(environ: Mapping[str, str], token_file: str, ca_file: str) -> Settings:
    """Reads the service account mounted into this pod. Raises ConnectionConfigError outside a cluster."""
    configuration = Configuration(host="")
    try:
        InClusterConfigLoader(token_file, ca_file, try_refresh_token=False, environ=dict(environ)).load_and_set(
            configuration
        )
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise ConnectionConfigError(
            f"no --kubeconfig and no --master given, and there are no in-cluster settings: {error}"
        ) from error
    return Settings(
        server=parse_server(configuration.host or "", tls=True),
        authorization=_header_value(configuration.api_key.get("BearerToken", ""), token_file),
        ca_file=configuration.ssl_ca_cert,
        reload_after=TOKEN_FILE_RELOAD,
        origin="in-cluster settings",
    )


def _directory_of(path: str) -> str:
    """Where the relative file names of a kubeconfig start."""
    return str(Path(path).resolve().parent)


def _user_of(document: dict[str, Any], context: str) -> dict[str, Any]:
    """The user section of a context. One that is missing or empty is filled in, which the loader needs for https."""
    contexts, users = document.get("contexts"), document.setdefault("users", [])
    chosen = [c["context"] for c in _named(contexts, context) if isinstance(c.get("context"), dict)]
    if not chosen or not isinstance(users, list):
        return {}
    name = chosen[0].setdefault("user", "anonymous")
    entries = _named(users, name)
    if not entries:
        entries = [{"name": name}]
        users.extend(entries)
    if not isinstance(entries[0].get("user"), dict):
        entries[0]["user"] = {}
    user: dict[str, Any] = entries[0]["user"]
    return user


def _named(entries: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]


def _header_value(value: str, where: str) -> str:
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise ConnectionConfigError(f"{where}: the token contains characters that are not allowed in a header")
    return value
