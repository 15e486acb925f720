"""Requests to a running scheduler: one GET over HTTPS, with the user's credentials."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ConnectionConfigError
from koordsched.client.settings import Settings, parse_server, read_kubeconfig

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds an answer may take."""

_LONGEST_EXCERPT = 2000
_UNKNOWN_PATH = "404 page not found"


class EndpointError(Exception):
    """The scheduler cannot be asked; the message is ready for the user.

    `missing`: what it says does not exist, if it knows the path and found nothing there.
    """

    def __init__(self, message: str, missing: str = "") -> None:
        super().__init__(message)
        self.missing = missing


class _Status(msgspec.Struct):
    """An error in the form of the Kubernetes API."""

    message: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a scheduler serves, and the credentials for it."""

    server: str
    authorization: str = field(repr=False)
    tls: ssl.SSLContext | None
    name: str
    """Its name in error messages."""

    @classmethod
    def open(
        cls,
        server: str,
        *,
        kubeconfig: str | None,
        context: str | None = None,
        token: str | None,
        ca_file: str | None,
        verify: bool,
    ) -> Endpoint:
        """Reads the credentials: those of a context of a kubeconfig, of which a token given here takes precedence.

        The endpoint has its own certificate, which the kubeconfig's CA did not sign; `ca_file` verifies it. Raises
        EndpointError.
        """
        settings: Settings | None = None
        try:
            url = parse_server(server, tls=True)
            if kubeconfig:
                settings = asyncio.run(read_kubeconfig(kubeconfig, context, "", SystemClock()))
        except ConnectionConfigError as error:
            raise EndpointError(str(error)) from error
        address = url.geturl()
        return cls.at(address, settings, token=token, ca_file=ca_file, verify=verify, check_name=verify, name=address)

    @classmethod
    def at(
        cls,
        server: str,
        settings: Settings | None,
        *,
        token: str | None,
        ca_file: str | None,
        verify: bool,
        check_name: bool,
        name: str,
    ) -> Endpoint:
        """The endpoint at a URL, asked with the token or client certificate of these settings.

        `check_name`: whether its certificate has to name the host. Raises EndpointError.
        """
        authorization = settings.authorization if settings is not None else ""
        if token:
            authorization = f"Bearer {token.strip()}"
            if not (authorization.isascii() and authorization.isprintable()):
                raise EndpointError("--token contains characters that are not allowed in a header")
        tls: ssl.SSLContext | None = None
        if server.startswith("https:"):
            try:
                tls = ssl.create_default_context(cafile=ca_file)
                if settings is not None and settings.cert_file:
                    tls.load_cert_chain(settings.cert_file, settings.key_file)
            except (OSError, ssl.SSLError) as error:
                raise EndpointError(f"cannot load the certificates: {error}") from error
            tls.check_hostname = check_name
            if not verify:
                tls.verify_mode = ssl.CERT_NONE
        return cls(server, authorization, tls, name)

    def ask(self, path: str, query: Mapping[str, str], kind: type[T], what: str) -> T:
        """The answer as `kind`. Raises EndpointError; `what` completes "the answer is not ..."."""
        try:
            return Decoder(kind)(self.get(path, query))
        except DecodeError as error:
            raise EndpointError(f"{self.name}: the answer is not {what}: {error}") from error

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """The body of the answer. Raises EndpointError for everything but 200."""
        url = f"{self.server}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if self.authorization:
            request.add_header("Authorization", self.authorization)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self.tls))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            text = error.read(_LONGEST_EXCERPT).decode("utf-8", "replace").strip()
            known = error.code == 404 and error.headers.get_content_type() == "text/plain" and text != _UNKNOWN_PATH
            raise EndpointError(
                f"{self.name}{path}: {error.code} {error.reason}{self._hint(error.code, text)}",
                missing=text if known else "",
            ) from error
        except (urllib.error.URLError, OSError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            hint = ""
            if isinstance(reason, ssl.SSLCertVerificationError):
                reason = reason.verify_message
                hint = " (use --ca-file with its CA, or --insecure-skip-tls-verify)"
            raise EndpointError(f"{self.name}: {reason}{hint}") from error
        except http.client.HTTPException as error:
            raise EndpointError(f"{self.name}: this is not the response of a scheduler: {error!r}") from error

    @staticmethod
    def _hint(code: int, text: str) -> str:
        with suppress(DecodeError):
            text = Decoder(_Status)(text.encode()).message
        if code in (401, 403):
            return f": {text or 'not allowed'} (credentials: --token or --kubeconfig)"
        return f": {text}" if text else ""
