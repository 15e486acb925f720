"""TLS for the endpoints: certificates from files or made in memory, versions and ciphers by their Go names."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PAIR_NAME = "kube-scheduler"
"""Base name of the files in --cert-dir."""

_VALID = datetime.timedelta(days=365)

_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}

# Always enabled with TLS 1.3, and not configurable (nor in Go).
_TLS13_CIPHERS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


class ServingError(ValueError):
    """A serving flag, or a file it names, cannot be used; the message says which and why."""


@dataclass(frozen=True)
class TLSOptions:
    """The secure serving flags. Without any file a certificate is generated for this run."""

    cert_file: str = ""
    key_file: str = ""
    cert_dir: str = ""
    min_version: str = ""
    cipher_suites: Sequence[str] = ()


def serving_context(
    options: TLSOptions, now: datetime.datetime, hosts: Sequence[str] = (), client_ca: bytes | None = None
) -> ssl.SSLContext:
    """The server's TLS context. `hosts` are names and addresses for a certificate of our own besides localhost.

    With `client_ca` (PEM) clients may present certificates signed by it. Raises ServingError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply_flags(context, options)
    _load_pair(context, options, now, hosts)
    if client_ca:
        trust_clients(context, client_ca)
    return context


def trust_clients(context: ssl.SSLContext, client_ca: bytes) -> None:
    """From now on clients may present certificates signed by `client_ca` (PEM), too. Raises ServingError."""
    try:
        context.load_verify_locations(cadata=client_ca.decode())
    except (ssl.SSLError, ValueError) as error:  # ValueError: empty, or not text
        raise ServingError(f"the client CA bundle cannot be read: {error}") from error
    context.verify_mode = ssl.CERT_OPTIONAL


class CertificateFiles:
    """Follows certificate files that are replaced while they are served."""

    def __init__(self, context: ssl.SSLContext, options: TLSOptions) -> None:
        self._context = context
        self._paths = _pair_of(options)
        self._seen = self._stamp()

    def reload_if_changed(self) -> bool:
        """Uses the new files for new connections; returns whether there were any. Raises ServingError."""
        if self._paths is None:
            return False
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        _load_files(self._context, *self._paths)
        self._seen = stamp
        return True

    def _stamp(self) -> list[tuple[int, int]]:
        stamps = []
        for path in self._paths or ():
            try:
                status = path.stat()
            except OSError:
                # Being replaced: what is loaded stays in use.
                return self._seen
            stamps.append((status.st_mtime_ns, status.st_ino))
        return stamps


def _pair_of(options: TLSOptions) -> tuple[Path, Path] | None:
    if options.cert_file or options.key_file:
        return Path(options.cert_file), Path(options.key_file)
    if options.cert_dir:
        directory = Path(options.cert_dir)
        return directory / f"{PAIR_NAME}.crt", directory / f"{PAIR_NAME}.key"
    return None


def _load_pair(context: ssl.SSLContext, options: TLSOptions, now: datetime.datetime, hosts: Sequence[str]) -> None:
    if bool(options.cert_file) != bool(options.key_file):
        raise ServingError("--tls-cert-file and --tls-private-key-file must be given together")
    paths = _pair_of(options)
    if paths is None:
        _load_memory(context, *self_signed(hosts, now))
        return
    if options.cert_dir and not options.cert_file and not any(path.exists() for path in paths):
        _write_pair(paths, *self_signed(hosts, now))
    _load_files(context, *paths)


def _load_files(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ServingError(f"cannot serve with {certificate} and {key}: {error}") from error


def _write_pair(paths: tuple[Path, Path], certificate: bytes, key: bytes) -> None:
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        paths[0].write_bytes(certificate)
        with open(os.open(paths[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
    except OSError as error:
        raise ServingError(f"cannot write a certificate to {paths[0].parent}: {error}") from error


def _load_memory(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """ssl reads files only, so this one has no name and no place on a disk."""
    descriptor = os.memfd_create("serving", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _apply_flags(context: ssl.SSLContext, options: TLSOptions) -> None:
    version = _VERSIONS.get(options.min_version)
    if version is None:
        known = ", ".join(filter(None, _VERSIONS))
        raise ServingError(f"--tls-min-version: unknown version {options.min_version!r}, use one of {known}")
    context.minimum_version = version
    chosen = []
    for name in options.cipher_suites:
        if name in _TLS13_CIPHERS:
            continue
        cipher = _CIPHERS.get(name)
        if cipher is None:
            raise ServingError(f"--tls-cipher-suites: unknown or unsupported cipher suite {name!r}")
        chosen.append(cipher)
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError as error:
            raise ServingError(f"--tls-cipher-suites: none of the suites can be used here: {error}") from error


def self_signed(hosts: Sequence[str], now: datetime.datetime) -> tuple[bytes, bytes]:
    """A certificate for localhost and `hosts`, valid for a year, and its key; both PEM. Raises ServingError."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"localhost@{int(now.timestamp())}")])
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts)):
        try:
            names.append(_name_of(host))
        except ValueError as error:
            raise ServingError(f"{host!r} is neither an address nor a host name") from error
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _name_of(host: str) -> x509.GeneralName:
    """Raises ValueError for what is neither an address nor a name in ASCII."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
