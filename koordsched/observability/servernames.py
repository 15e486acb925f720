"""Other certificates for other server names (--tls-sni-cert-key)."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from koordsched.observability.servingtls import ServingError, TLSOptions, serving_context


def serve_names(
    context: ssl.SSLContext, options: TLSOptions, flags: Sequence[str], now: datetime.datetime
) -> list[tuple[TLSOptions, ssl.SSLContext]]:
    """Makes connections that ask for a name use the certificate for it; returns what each flag came to.

    A flag is `certificate,key` or `certificate,key:name,…`; without names those of the certificate count, and
    `*.domain` stands for every name one level below. Raises ServingError.
    """
    by_name: dict[str, ssl.SSLContext] = {}
    made = []
    for flag in flags:
        files, _, names = flag.partition(":")
        certificate, comma, key = files.partition(",")
        if not (comma and certificate and key):
            raise ServingError(f"--tls-sni-cert-key: {flag!r} is not of the form certificate,key:name,…")
        own = replace(options, cert_file=certificate, key_file=key, cert_dir="")
        special = serving_context(own, now)
        for name in names.split(",") if names else _names_in(certificate):
            by_name.setdefault(name.strip().lower(), special)
        made.append((own, special))
    if made:

        def choose(connection: ssl.SSLObject, name: str | None, default: ssl.SSLContext) -> None:
            wanted = (name or "").lower().rstrip(".")
            found = by_name.get(wanted) or by_name.get(f"*.{wanted.partition('.')[2]}")
            if found is not None:
                connection.context = found

        context.sni_callback = choose
    return made


def _names_in(path: str) -> list[str]:
    """The names a certificate is for; its common name if it lists none."""
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        listed = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        listed = []
    if listed:
        return listed
    return [str(name.value) for name in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
