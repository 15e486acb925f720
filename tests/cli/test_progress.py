"""One line that is written again and again, on a terminal alone."""

import io

from koordsched.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal():
    out, now = Terminal(), 0.0
    with Progress(lambda: now, out) as progress:
        for now in (0.0, 0.05, 0.2):
            progress.show(f"at {now}")
    assert out.getvalue() == "\r\x1b[Kat 0.0\r\x1b[Kat 0.2\r\x1b[K"


def test_elsewhere():
    out = io.StringIO()
    with Progress(lambda: 1.0, out) as progress:
        progress.show("something")
    assert out.getvalue() == ""
    terminal = Terminal()
    with Progress(lambda: 1.0, terminal):
        pass
    assert terminal.getvalue() == ""
