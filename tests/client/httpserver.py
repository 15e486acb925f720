"""A scripted HTTP/1.1 server on a loopback socket, plain or TLS, for tests of the bytes on the wire."""

import asyncio
import datetime
import ipaddress
import ssl

import httptools
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def response(status=200, body=b"{}", *headers):
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Exchange:
    """One request as it arrived, and the means to answer it."""

    def __init__(self, connection, method, target, headers, body):
        self.connection = connection
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body

    def reply(self, data):
        self.connection.transport.write(data)

    def hang_up(self):
        self.connection.transport.abort()

    def peer_name(self):
        """Common name in the client's certificate, None without one."""
        certificate = self.connection.transport.get_extra_info("peercert")
        if not certificate:
            return None
        return dict(pair for rdn in certificate["subject"] for pair in rdn)["commonName"]


class _Connection(asyncio.Protocol):
    def __init__(self, server):
        self.server = server
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport):
        self.transport = transport
        self.server.connections.append(self)
        self.on_message_begin()
        if self.server.turns_away:
            transport.abort()

    def connection_lost(self, error):
        self.server.connections.remove(self)

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_message_begin(self):
        self.target, self.headers, self.body = b"", {}, b""

    def on_url(self, url):
        self.target += url

    def on_header(self, name, value):
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, data):
        self.body += data

    def on_message_complete(self):
        exchange = Exchange(self, self.parser.get_method().decode(), self.target.decode(), self.headers, self.body)
        self.server.exchanges.append(exchange)
        self.server.answer(exchange)


class HttpServer:
    """`answer(exchange)` is called for each request; by default it replies 200 with an empty object.

    `turns_away`: every connection is reset as soon as it is there, as by a load balancer with nobody behind it.
    """

    def __init__(self, tls=None):
        self.tls = tls
        self.answer = lambda exchange: exchange.reply(response())
        self.exchanges = []
        self.connections = []
        self.opened = 0
        self.turns_away = False

    async def start(self, port=0):
        def connection():
            self.opened += 1
            return _Connection(self)

        self._server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await asyncio.wait_for(self._server.wait_closed(), 5)

    async def __aenter__(self):
        return await self.start()

    async def __aexit__(self, *_):
        await self.stop()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"


class Authority:
    """A certificate authority of our own, and files signed by it in `directory`."""

    def __init__(self, directory):
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        # No key identifiers: many clusters' authorities lack them, and Go does not mind.
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self.name, self.key).add_extension(constraints, critical=True)
        self.certificate = certificate.sign(self.key, hashes.SHA256())
        self.ca_file = self._write("ca.crt", self.certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject, key):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    def _write(self, name, data):
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def issue(self, common_name, dns=(), addresses=()):
        """A certificate; returns the names of its file and its key's."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, dns), *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses)]
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]), key)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        key_bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return (
            self._write(f"{common_name}.crt", certificate.public_bytes(pem)),
            self._write(f"{common_name}.key", key_bytes),
        )

    def server_context(self, *, dns=(), addresses=("127.0.0.1",), client_certificates=False):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue("server", dns, addresses))
        if client_certificates:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
