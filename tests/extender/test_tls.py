"""TLS towards extenders."""

import base64
import datetime
import ssl

import pytest

from koordsched.config.wire import Extender, ExtenderTLSConfig
from koordsched.extender.tls import ExtenderConfigError, tls_context
from koordsched.observability.servingtls import TLSOptions, self_signed, serving_context
from tests.embedded import Embedded, scheduler_on
from tests.extender.service import Service, condition_of, everything, extended, extender, node_of, serving
from tests.observability.certificates import Authority
from tests.plugins.objects import node, pod
from tests.waiting import until

NOW = datetime.datetime.now(datetime.UTC)


def pair(tmp_path, name="server"):
    certificate, key = self_signed((), NOW)
    files = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
    files[0].write_bytes(certificate)
    files[1].write_bytes(key)
    return files, certificate


def tls_settings(tmp_path, certificate, files):
    encoded = base64.b64encode(certificate).decode()
    return {
        "trusted by data": ({"tlsConfig": {"caData": encoded}}, True),
        "trusted by file": ({"tlsConfig": {"caFile": str(files[0])}}, True),
        "insecure": ({"tlsConfig": {"insecure": True}}, True),
        "enableHTTPS without a CA": ({"enableHTTPS": True}, True),
        "enableHTTPS with a CA": ({"enableHTTPS": True, "tlsConfig": {"caData": encoded}}, True),
        "another name": ({"tlsConfig": {"caData": encoded, "serverName": "localhost"}}, True),
        "a wrong name": ({"tlsConfig": {"caData": encoded, "serverName": "elsewhere"}}, False),
        "untrusted": ({}, False),
    }


@pytest.mark.parametrize("case", list(tls_settings(None, b"", ("", ""))))
async def test_tls(tmp_path, case):
    files, certificate = pair(tmp_path)
    settings, works = tls_settings(tmp_path, certificate, files)[case]
    context = serving_context(TLSOptions(str(files[0]), str(files[1])), NOW)
    service = Service(filter=everything)
    async with serving(service, context):
        found = await outcome(service, **settings)
        assert (found == "alder") if works else ("certificate" in found.lower())


async def test_tls_with_a_client_certificate(tmp_path):
    authority = Authority()
    files, certificate = pair(tmp_path)
    context = serving_context(TLSOptions(str(files[0]), str(files[1])), NOW, client_ca=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    cert_file, key_file = authority.client(tmp_path, "scheduler")
    in_files = {"certFile": cert_file, "keyFile": key_file}
    in_line = {
        name: base64.b64encode((tmp_path / f"scheduler.{suffix}").read_bytes()).decode()
        for name, suffix in (("certData", "crt"), ("keyData", "key"))
    }
    for given in (in_files, in_line):
        service = Service(filter=everything)
        async with serving(service, context):
            settings = {"caData": base64.b64encode(certificate).decode(), **given}
            assert await outcome(service, tlsConfig=settings) == "alder"


async def outcome(service, **settings):
    """The node of a pod that the extender is asked about, or the message why it has none."""
    embedded = Embedded()
    embedded.insert(node("alder"))
    async with scheduler_on(embedded, extended(extender(service, "filter", **settings))):
        embedded.insert(pod("p"))
        await until(lambda: node_of(embedded, "p") or condition_of(embedded, "p"), "the outcome")
        return node_of(embedded, "p") or condition_of(embedded, "p")[1]


def test_tls_settings_that_cannot_work(tmp_path):
    garbage = tmp_path / "garbage"
    garbage.write_text("x")
    for config, expected in (
        (ExtenderTLSConfig(insecure=True, ca_data=b"x"), "specifying a root certificates file with the insecure flag"),
        (ExtenderTLSConfig(ca_file="/nowhere"), "cannot load the certificates (/nowhere)"),
        (ExtenderTLSConfig(ca_file=str(garbage)), f"cannot load the certificates ({garbage})"),
        (ExtenderTLSConfig(ca_data=b"\xff"), "cannot load the certificates (inline)"),
        (ExtenderTLSConfig(cert_data=b"x", key_data=b"y"), "cannot load the certificates (inline)"),
        (ExtenderTLSConfig(cert_file="/nowhere"), "cannot load the certificates (/nowhere)"),
    ):
        with pytest.raises(ExtenderConfigError) as refused:
            tls_context(Extender(url_prefix="https://ext", tls_config=config))
        assert str(refused.value).startswith("couldn't build extenders: https://ext: ")
        assert expected in str(refused.value)
