"""Reports that a running scheduler does not have."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from koordsched.cli import main


@pytest.fixture
def without_reports():
    """The address of a server that has none, as a scheduler's plain port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *args):
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("command", "plugin"),
    [
        (["quota", "tree"], "ElasticQuota"),
        (["load", "nodes"], "LoadAwareScheduling"),
        (["numa"], "NodeNUMAResource"),
        (["numa", "n"], "NodeNUMAResource"),
        (["devices"], "DeviceShare"),
        (["devices", "n"], "DeviceShare"),
    ],
)
def test_a_scheduler_without_the_report_or_its_plain_port(without_reports, command, plugin):
    result = CliRunner().invoke(main, [*command, "--server", without_reports])
    assert result.exit_code != 0
    assert f"no profile of this scheduler enables {plugin}, or this is its plain port" in result.stderr
