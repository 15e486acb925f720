"""What plugins declare: it is all read, and needs nothing of those who read it."""

import subprocess
import sys

from koordsched.cli import COMMANDS, VIEWS
from koordsched.config import IN_TREE as OF_CONFIG
from koordsched.plugins import CATALOG, DECLARED, IN_TREE, KINDS

FOREIGN = ("aiohttp", "click", "rich", "koordsched.client", "koordsched.scheduling", "koordsched.cli")


def test_plugins_know_neither_the_server_nor_the_terminal():
    program = f"import koordsched.plugins, sys; print([name for name in {FOREIGN} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_names_are_taken_once():
    names = [declared.name for declared in DECLARED]
    assert len(set(names)) == len(names)
    for declared in DECLARED:
        # One of kube-scheduler's is known without its declaration, by the same entry.
        assert OF_CONFIG.get(declared.name, declared.entry) == declared.entry
    assert set(names) <= IN_TREE.keys() & CATALOG.keys()
    others = {name for name, listed in COMMANDS.items() if listed.where != VIEWS}
    assert not {view.group for declared in DECLARED for view in declared.views} & others


def test_kinds_of_plugins_are_known_without_importing_them():
    program = "from koordsched.plugins import KINDS; print(len(KINDS))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert int(printed) == len(KINDS)
    assert ("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota") in KINDS
