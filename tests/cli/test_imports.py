"""The list of commands and their names come without what commands need."""

import subprocess
import sys

import click
import pytest

from koordsched.cli import COMMANDS, VIEWS, main
from koordsched.cli.views import view_commands
from tests.cli.clusters import run

HEAVY = ("aiohttp", "kubernetes_asyncio", "numpy", "prometheus_client", "rich", "yaml", "uvloop", "koordsched.plugins")
PARSED = ("yaml",)
"""What reads the defaults of the configuration, which are those of the flags."""


def imported(*arguments):
    """Which of HEAVY `koordsched <arguments>` has imported at its end."""
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('imported', *(name for name in {HEAVY} if name in sys.modules)))\n"
        f"sys.argv = {['koordsched', *arguments]}\n"
        "from koordsched.cli import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    *_, last = result.stdout.splitlines()
    assert last.split()[0] == "imported", result
    return last.split()[1:]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], ()),
        ([], ()),
        (["--version"], ()),
        (["version"], ()),
        (["mistyped"], ()),
        (["run", "--help"], PARSED),
        (["run", "--version"], PARSED),
        (["run", "--mistyped"], PARSED),
        (["check-config", "--help"], PARSED),
    ],
    ids=" ".join,
)
def test_what_says_only_how_to_use_it_imports_little(arguments, expected):
    assert imported(*arguments) == list(expected)


def test_the_list_says_what_the_commands_say():
    context = click.Context(main)
    said = {name: main.get_command(context, name).get_short_help_str(limit=1000) for name in COMMANDS}
    assert said == {name: listed.short_help for name, listed in COMMANDS.items()}
    shown = " ".join(run("--help").stdout.split())
    assert [name for name, text in said.items() if f" {name} {text}" not in shown] == []


def test_the_list_has_the_commands_of_plugins():
    assert {name for name, listed in COMMANDS.items() if listed.where == VIEWS} == view_commands().keys()
