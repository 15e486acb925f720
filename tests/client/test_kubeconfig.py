"""Which kubeconfig files count, and several of them as one."""

import os
from pathlib import Path

import pytest
import yaml

from koordsched.client.errors import ConnectionConfigError
from koordsched.client.kubeconfig import load, namespace_of, section, usual_path


def write(path, **document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **document}))
    return str(path)


def named(kind, **entries):
    return {f"{kind}s": [{"name": name, kind: entry} for name, entry in entries.items()]}


def test_what_kubectl_would_read(tmp_path):
    home = tmp_path / "home"
    assert usual_path({}, home) == ""
    usual = write(home / ".kube" / "config")
    assert usual_path({}, home) == usual
    one, missing = write(tmp_path / "one"), str(tmp_path / "missing")
    assert usual_path({"KUBECONFIG": one}, home) == one
    assert usual_path({"KUBECONFIG": os.pathsep.join(("", missing, one))}, home) == one
    assert usual_path({"KUBECONFIG": missing}, home) == missing
    assert usual_path({"KUBECONFIG": ""}, home) == usual


def test_of_several_files_the_first_says_it(tmp_path):
    first = write(
        tmp_path / "a" / "config",
        **named("cluster", c={"server": "https://first", "certificate-authority": "ca.pem"}),
        **named("user", u={"exec": {"command": "./login", "apiVersion": "v1"}}, v={"exec": {"command": "login"}}),
    )
    second = write(
        tmp_path / "b" / "config",
        **named("cluster", c={"server": "https://second"}, d={"server": "https://d"}),
        **named("user", w={"client-certificate": "/etc/w.pem", "client-key": "w.key", "tokenFile": "../token"}),
        **named("context", k={"cluster": "c", "user": "u", "namespace": "shop"}),
        **{"current-context": "k"},
    )
    document = load(os.pathsep.join((first, second)))
    assert section(document, "cluster", "c") == {
        "server": "https://first",
        "certificate-authority": str(tmp_path / "a" / "ca.pem"),
    }
    assert section(document, "cluster", "d") == {"server": "https://d"}
    assert section(document, "cluster", "e") is None
    assert section(document, "user", "u")["exec"]["command"] == str(tmp_path / "a" / "login")
    assert section(document, "user", "v")["exec"]["command"] == "login"
    assert section(document, "user", "w") == {
        "client-certificate": "/etc/w.pem",
        "client-key": str(tmp_path / "b" / "w.key"),
        "tokenFile": str(tmp_path / "b" / ".." / "token"),
    }
    assert document["current-context"] == "k"
    assert namespace_of(os.pathsep.join((first, second)), None) == "shop"


def test_the_namespace_of_a_context(tmp_path):
    path = write(tmp_path / "config", **named("context", k={"namespace": "shop"}, plain={}))
    assert namespace_of(path, "k") == "shop"
    assert namespace_of(path, "plain") == namespace_of(path, "none") == "default"
    with pytest.raises(ConnectionConfigError, match="no current-context"):
        namespace_of(path, None)


@pytest.mark.parametrize("text", ["[]", "{", "clusters: [1, {name: [a]}]\nusers: x\ncontexts: {a: b}\n"])
def test_odd_files(tmp_path, text):
    path = Path(tmp_path / "config")
    path.write_text(text)
    if text.startswith("clusters"):
        assert section(load(str(path)), "cluster", "a") is None
    else:
        with pytest.raises(ConnectionConfigError, match=str(path)):
            load(str(path))
