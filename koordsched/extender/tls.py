"""TLS towards an extender, as its `tlsConfig` and `enableHTTPS` say (client-go `transport` semantics)."""

from __future__ import annotations

import os
import ssl

from koordsched.config.secrets import without_secrets
from koordsched.config.wire import Extender, ExtenderTLSConfig


class ExtenderConfigError(ValueError):
    """An extender's settings cannot be used; the message is ready for the user."""


def tls_context(extender: Extender) -> ssl.SSLContext:
    """The client context. `enableHTTPS` without a CA of one's own means that nothing is verified.

    Raises ExtenderConfigError.
    """
    config = extender.tls_config or ExtenderTLSConfig()
    has_ca = bool(config.ca_file or config.ca_data)
    insecure = config.insecure or (extender.enable_https and not has_ca)
    where = f"couldn't build extenders: {without_secrets(extender.url_prefix)}"
    if insecure and has_ca:
        raise ExtenderConfigError(f"{where}: specifying a root certificates file with the insecure flag is not allowed")
    try:
        context = ssl.create_default_context(
            cafile=config.ca_file if config.ca_file and not config.ca_data else None,
            cadata=config.ca_data.decode() if config.ca_data else None,
        )
        # Newer Pythons demand extensions that many private CAs lack and that Go's verification does not ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if config.cert_data or config.key_data:
            _load_memory(context, config.cert_data + b"\n" + config.key_data)
        elif config.cert_file or config.key_file:
            context.load_cert_chain(config.cert_file, config.key_file or None)
    except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
        files = ", ".join(name for name in (config.ca_file, config.cert_file, config.key_file) if name)
        raise ExtenderConfigError(f"{where}: cannot load the certificates ({files or 'inline'}): {error}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_memory(context: ssl.SSLContext, pair: bytes) -> None:
    """ssl reads certificates of its own from files only; this one is nowhere on a disk."""
    descriptor = os.memfd_create("extender", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pair)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
