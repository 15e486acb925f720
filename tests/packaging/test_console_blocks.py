"""What documents show is so: their console blocks, run in order in a clean clone, and what they print."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from koordsched.cli import main
from tests.cli.test_daemon import free_port
from tests.packaging.checkout import ENDPOINT, ROOT, clone, docker, environment, install
from tests.packaging.consoleblocks import Command, agree, commands, constant, differences, run
from tests.packaging.kubectl import api_server, kubectl, needs_kubectl

WITHIN = 240.0
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("config/**/*.md")])
}
WITH_CONSOLE = [name for name, text in DOCUMENTS.items() if commands(text)]
QUICK = {"README.md", "docs/getting-started.md", "docs/monitoring.md"}
"""What is read first."""
INSTALLING = {"README.md", "docs/getting-started.md"}
"""Those that say how to install; the others presuppose it."""
LANGUAGES = {"console", "sh", "text", "yaml", "python", "promql"}
"""console: run here. sh: for a cluster of the reader's own, or slow; checked here or run elsewhere. text: none."""
PROGRAMS = re.compile(r"^(\$ )?(sudo|koordsched|kubectl|make|docker|git|pip|python|curl|sed|cp|mv|kill|export)\b", re.M)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
EXISTING = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""


def slow(name: str) -> object:
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)


@needs_kubectl
@pytest.mark.parametrize("name", [*map(slow, WITH_CONSOLE)])
def test_commands_of_a_document(name: str, tmp_path: Path) -> None:
    checkout, port, pushed = clone(tmp_path), free_port(), tmp_path / "pushed"
    installed = install(checkout, port)
    docker(tmp_path / "bin", pushed)

    def here(text: str) -> str:
        return text.replace("/tmp/", f"{tmp_path}/").replace(ENDPOINT, f":{port}")

    script = [
        Command(here(command.text), tuple(map(here, command.printed)))
        for command in commands(DOCUMENTS[name])
        if not command.text.startswith("git clone ")
    ]
    with api_server(tmp_path) as kubeconfig:
        operator = tmp_path / "operator.yaml"
        kinds = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}
        operator.write_text("---".join(EXISTING.format(plural=plural, kind=kind) for plural, kind in kinds.items()))
        kubectl("--kubeconfig", kubeconfig, "apply", "-f", str(operator))
        found = [tmp_path / "bin"] if name in INSTALLING else [tmp_path / "bin", installed]
        printed = run(script, environment(*found, kubeconfig=kubeconfig), checkout, tmp_path / "output", WITHIN)
    if different := differences(script, printed):
        pytest.fail("\n\n".join(different), pytrace=False)
    if pushed.exists():
        images = re.findall(r"^push (\S+)$", pushed.read_text(), re.M)
        assert [f"-t {image} ." in pushed.read_text() for image in images] == [True]
        deployments = yaml.safe_load_all(kubectl("kustomize", str(checkout / "manifests")))
        (run_there,) = [each for each in deployments if each["kind"] == "Deployment"]
        assert [container["image"] for container in run_there["spec"]["template"]["spec"]["containers"]] == images


@pytest.mark.slow
def test_make_venv_in_a_clone(tmp_path: Path) -> None:
    """For real, with what pip gets from its index."""
    index = ["pip", "--disable-pip-version-check", "download", "--no-deps", "--quiet", "--dest", str(tmp_path), "click"]
    if subprocess.run([sys.executable, "-m", *index], capture_output=True, timeout=WITHIN, check=False).returncode:
        pytest.skip("pip reaches no index")
    checkout = clone(tmp_path)
    shell = environment(kubeconfig="/nonexistent")
    made = ["make", "venv", f"PYTHON={sys.executable}"]
    subprocess.run(made, cwd=checkout, env=shell, timeout=WITHIN, check=True)
    (block,) = (text for text in commands(DOCUMENTS["README.md"]) if text.text.startswith("koordsched explain"))
    printed = run([Command('export PATH="$PWD/.venv/bin:$PATH"', ()), block], shell, checkout, tmp_path / "out", WITHIN)
    assert differences([block], printed[1:]) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_says_whether_it_is_run(name: str) -> None:
    blocks = FENCE.findall(DOCUMENTS[name])
    assert {language for language, _ in blocks} <= LANGUAGES
    assert [text for language, text in blocks if language not in ("console", "sh") and PROGRAMS.search(text)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_that_are_not_run_exist(name: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for language, text in FENCE.findall(DOCUMENTS[name]):
        lines = text.replace("\\\n", " ").splitlines() if language == "sh" else ()
        for line in [part for whole in lines for part in re.split(r" (?:\|\||&&) ", whole)]:
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets, line
            elif words[:2] == ["python", "-m"]:
                assert importlib.util.find_spec(words[2]), line
            elif words[:1] == ["koordsched"]:
                assert unknown(words[1:]) == [], line


def unknown(words: list[str]) -> list[str]:
    """The commands and options that koordsched has not."""
    command: click.Command | None = main
    while isinstance(command, click.Group) and words:
        name, *words = words
        command = command.get_command(click.Context(command), name)
        if command is None:
            return [name]
    assert command is not None
    options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return [option for option in given if option not in options]


def test_unknown_options_are_found() -> None:
    assert unknown(["quota", "tree", "--server", "x", "--nope"]) == ["--nope"]
    assert unknown(["quota", "bush"]) == ["bush"]


@pytest.mark.parametrize(
    ("said", "shown", "same"),
    [
        ("a...\nb", "abc\nb", True),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("a\n...", "a", True),
        ("a\n...\nz", "a\nb", False),
        ("a", "a\nb", False),
        ("web-cq99b2nc-9fpp4  12 s", "web-x7c9k4d2-abcde\n", False),
        ("web-cq99b2nc-9fpp4  12 s", "web-x7c9k4d2-bcd5f  3s", True),
        ("cpu 500m", "cpu 400m", False),
        ("cluster  in process 12", "cluster in process 345", True),
    ],
)
def test_comparison(said: str, shown: str, same: bool) -> None:
    lines = ([constant(line) for line in text.splitlines()] for text in (said, shown))
    assert agree(*lines) is same
