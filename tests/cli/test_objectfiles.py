"""Reading objects from files: what counts, and where a complaint points."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from koordsched.cli.objectfiles import InputError, read_objects

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


def names(*paths: Path) -> list[str]:
    return [sourced.name for sourced in read_objects([str(path) for path in paths])]


def test_directories_files_and_documents(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.yml").write_text(POD % "three")
    (tmp_path / "a.yaml").write_text(f"---\n{POD % 'one'}---\n# nothing\n---\n{POD % 'two'}")
    (tmp_path / "c.json").write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "four"}}))
    (tmp_path / "README.md").write_text("not read")
    assert names(tmp_path) == ["one", "two", "three", "four"]
    (tmp_path / "manifest").write_text(POD % "five")
    assert names(tmp_path / "manifest", tmp_path / "b") == ["five", "three"]


def test_lists_stand_for_their_items(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    items = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}]
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert names(path) == ["one"]
    # The API's own lists: the items do not repeat their kind.
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n"}}]}))
    (node,) = read_objects([str(path)])
    assert (node.kind, node.api_version, node.where) == ("Node", "v1", f"{path}: items[0]")
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "PodList", "items": None}))
    assert names(path) == []


def test_times_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: 2026-01-02T03:04:05Z}\n")
    (pod,) = read_objects([str(path)])
    assert pod.meta["creationTimestamp"] == "2026-01-02T03:04:05Z"


def test_keys_become_text_as_in_json(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {7: a, true: b}}\n")
    (pod,) = read_objects([str(path)])
    assert pod.meta["labels"] == {"7": "a", "true": "b"}


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("a.yaml", b"a: [", "not valid YAML: while parsing a flow node did not find expected node content"),
        ("a.yaml", b"\xff\xfe\x00", "not UTF-8 text: invalid start byte at byte 0"),
        ("a.json", b"{", "not valid JSON: unexpected end of data: line 1 column 2 (char 1)"),
        ("a.yaml", b"just text", "an object was expected, not str"),
        ("a.yaml", b"kind: Pod\nmetadata: {name: a}", "apiVersion is missing"),
        ("a.yaml", b"apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
        ("a.yaml", b"apiVersion: v1\nkind: Pod", "Pod: metadata is missing"),
        ("a.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {}", "Pod: metadata.name is missing"),
        ("a.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: 7}", "Pod: metadata.name: text was expected, not 7"),
        (
            "a.yaml",
            b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [b]}",
            "Pod: metadata.labels: an object was expected, not list",
        ),
        (
            "a.yaml",
            b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, ownerReferences: [b]}",
            "Pod: metadata.ownerReferences: a list of objects was expected",
        ),
        ("a.yaml", POD.encode() % b"a" + b"n: 99999999999999999999999", "not valid YAML: Integer exceeds 64-bit range"),
        ("a.yaml", POD.encode() % b"a" + b"n: .inf", "not valid YAML: .inf is not a finite number"),
        ("a.yaml", POD.encode() % b"a" + b"n: !!binary aGk=", "not valid YAML: Type is not JSON serializable: bytes"),
        ("a.yaml", POD.encode() % b"a" + b"n: &n [*n]", "not valid YAML: Recursion limit reached"),
        ("a.yaml", b"[" * 100_000, "not valid YAML: nested more than 1000 levels deep"),
        ("a.yaml", b"- " * 100_000, "not valid YAML: nested more than 1000 levels deep"),
        ("a.yaml", b"apiVersion: v1\nkind: PodList\nitems: 3", "items: a list was expected, not int"),
        ("a.yaml", b"apiVersion: v1\nkind: PodList\nitems: [3]", "items[0]: an object was expected, not int"),
    ],
)
def test_complaints(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_objects([str(path)])
    assert str(caught.value).startswith(f"{path}: {complaint}")


def test_the_document_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{POD % 'one'}---\napiVersion: v1\nkind: List\nitems: [{{kind: Pod, apiVersion: v1}}]")
    with pytest.raises(InputError, match="metadata is missing") as caught:
        read_objects([str(path)])
    assert str(caught.value) == f"{path}: document 2: items[0]: Pod: metadata is missing"


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        read_objects([str(tmp_path / "nowhere.yaml")])
    with pytest.raises(InputError, match="no file below it ends in"):
        read_objects([str(tmp_path)])
