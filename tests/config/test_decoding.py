"""Strict decoding: every complaint, with upstream's texts."""

from itertools import pairwise
from pathlib import Path

import pytest

from koordsched.config import ConfigError, load
from tests.config.documents import HEAD, args, document

JSON_HEAD = '"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration"'
IN_SCHEME = 'in scheme "pkg/scheduler/apis/config/scheme/scheme.go:29"'
FIT = "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: "
FIT += "decoding args for plugin NodeResourcesFit: strict decoding error: "
NINE_TIMES = "{1}: &{1} [" + ",".join(["*{0}"] * 9) + "]\n"
NOT_AN_OBJECT = "couldn't get version/kind; json parse error: json: cannot unmarshal"

CASES = {
    "unknown field": (HEAD + "bogus: 1\n", 'strict decoding error: unknown field "bogus"'),
    "unknown fields, sorted as in the JSON that YAML becomes": (
        HEAD + "zeta: 1\nalpha: 2\nleaderElection:\n  leaderElects: true\n",
        'strict decoding error: unknown field "alpha", unknown field "leaderElection.leaderElects", '
        'unknown field "zeta"',
    ),
    "keys are case sensitive": (HEAD + "Parallelism: 3\n", 'strict decoding error: unknown field "Parallelism"'),
    "unknown field in a list": (
        HEAD + "profiles:\n- plugins:\n    score:\n      enabled:\n      - nam: x\n",
        'strict decoding error: unknown field "profiles[0].plugins.score.enabled[0].nam"',
    ),
    "repeated key in YAML": (
        HEAD + "leaderElection:\n  leaderElect: true\n  leaderElect: false\n",
        'strict decoding error: yaml: unmarshal errors:\n  line 5: key "leaderElect" already set in map',
    ),
    "repeated and unknown": (
        HEAD + "parallelism: 3\nparallelism: 4\nfoo: bar\n",
        'strict decoding error: yaml: unmarshal errors:\n  line 4: key "parallelism" already set in map, '
        'unknown field "foo"',
    ),
    "repeated names in JSON": (
        "{" + JSON_HEAD + ',"leaderElection":{"leaderElect":true,"leaderElect":false}}',
        'strict decoding error: duplicate field "leaderElection.leaderElect"',
    ),
    "older version": (
        "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n",
        'no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3" '
        + IN_SCHEME,
    ),
    "foreign kind": (
        "apiVersion: v1\nkind: Config\n",
        f'no kind "Config" is registered for version "v1" {IN_SCHEME}',
    ),
    "arguments instead of a configuration": (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: NodeAffinityArgs\n",
        "couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, Kind=NodeAffinityArgs: ",
    ),
    "no kind": ("apiVersion: v1\n", "Object 'Kind' is missing in 'apiVersion: v1\n'"),
    "no version": ("kind: X\n", "Object 'apiVersion' is missing in 'kind: X\n'"),
    "empty": ("", "Object 'Kind' is missing in ''"),
    "a list": ("- a\n", f"{NOT_AN_OBJECT} array into Go value of type struct with apiVersion and kind"),
    "a path where text is expected": (
        "config.yaml",
        f"{NOT_AN_OBJECT} string into Go value of type struct with apiVersion and kind",
    ),
    "version is a number": (
        "apiVersion: 1\n",
        f"{NOT_AN_OBJECT} number into Go struct field .apiVersion of type string",
    ),
    "version with too many parts": (
        "apiVersion: a/b/c\nkind: X\n",
        "couldn't get version/kind; unexpected GroupVersion string: a/b/c",
    ),
    "wrong type": (
        HEAD + "parallelism: many\n",
        "json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    ),
    "wrong type in a nested struct": (
        HEAD + "profiles:\n- schedulerName: 1\n",
        "json: cannot unmarshal number into Go struct field KubeSchedulerProfile.profiles.schedulerName of type string",
    ),
    "not a list": (
        HEAD + "profiles: {}\n",
        "json: cannot unmarshal object into Go struct field KubeSchedulerConfiguration.profiles "
        "of type []v1.KubeSchedulerProfile",
    ),
    "not an object": (
        HEAD + "leaderElection: 3\n",
        "json: cannot unmarshal number into Go struct field KubeSchedulerConfiguration.leaderElection "
        "of type v1.LeaderElectionConfiguration",
    ),
    "not a whole number": (
        HEAD + "parallelism: 1.5\n",
        "json: cannot unmarshal number 1.5 into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    ),
    "too large a number": (
        HEAD + "parallelism: 3000000000\n",
        "json: cannot unmarshal number 3000000000 into Go struct field KubeSchedulerConfiguration.parallelism "
        "of type int32",
    ),
    "not a boolean": (
        HEAD + "enableProfiling: 1\n",
        "json: cannot unmarshal number into Go struct field KubeSchedulerConfiguration.enableProfiling of type bool",
    ),
    "duration without unit": (
        HEAD + "leaderElection:\n  leaseDuration: '15'\n",
        'leaderElection.leaseDuration: time: missing unit in duration "15"',
    ),
    "duration as a number": (
        HEAD + "leaderElection:\n  leaseDuration: 15\n",
        "json: cannot unmarshal number into Go struct field LeaderElectionConfiguration.leaderElection.leaseDuration "
        "of type string",
    ),
    "args with unknown fields": (
        args("NodeResourcesFit", scoringStrategy={"resources": [{"Name": "cpu", "Weight": 1}]}),
        FIT + 'unknown field "scoringStrategy.resources[0].Name", unknown field "scoringStrategy.resources[0].Weight"',
    ),
    "repeated names in JSON args": (
        "{" + JSON_HEAD + ',"profiles":[{"pluginConfig":[{"name":"NodeResourcesFit","args":{"kind":"","kind":""}}]}]}',
        FIT + 'duplicate field "kind"',
    ),
    "args of another plugin": (
        args("DefaultPreemption", kind="InterPodAffinityArgs"),
        "decoding .profiles[0].pluginConfig[0]: args for plugin DefaultPreemption were not of type "
        "DefaultPreemptionArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io",
    ),
    "args of no plugin": (
        args("DefaultPreemption", kind="Foo"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin DefaultPreemption: "
        f'no kind "Foo" is registered for version "kubescheduler.config.k8s.io/v1" {IN_SCHEME}',
    ),
    "args of another version": (
        args("DefaultPreemption", apiVersion="kubescheduler.config.k8s.io/v1beta3"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin DefaultPreemption: no kind "
        f'"DefaultPreemptionArgs" is registered for version "kubescheduler.config.k8s.io/v1beta3" {IN_SCHEME}',
    ),
    "args of a wrong type": (
        args("InterPodAffinity", hardPodAffinityWeight="heavy"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: json: cannot unmarshal "
        "string into Go struct field InterPodAffinityArgs.hardPodAffinityWeight of type int32",
    ),
    "broken YAML": (HEAD + "a: b: c\n", "yaml: line 3: mapping values are not allowed here"),
    "alias of nothing": (HEAD + "a: *b\n", "yaml: unknown anchor 'b' referenced"),
    "alias of itself": (HEAD + "a: &b [*b]\n", "yaml: anchor 'b' value contains itself"),
    "no JSON number": (HEAD + "parallelism: .inf\n", "yaml: line 3: json: unsupported value: +Inf"),
    "a list as key": (HEAD + "? [a]\n: 1\n", "yaml: line 3: invalid map key: a list"),
    "too deep": (HEAD + "a: " + "[" * 200, "yaml: exceeded max depth of 100"),
    "too deep in JSON": (
        "{" + JSON_HEAD + ',"a":' + "[" * 200 + "]" * 200 + "}",
        "couldn't get version/kind; json parse error: exceeded max depth of 100",
    ),
    "an alias bomb": (
        HEAD + "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(NINE_TIMES.format(*pair) for pair in pairwise("abcdefghi")),
        "yaml: document contains excessive aliasing",
    ),
}


@pytest.mark.parametrize("text, message", CASES.values(), ids=CASES)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == message


def test_broken_json() -> None:
    with pytest.raises(ConfigError, match=r"^couldn't get version/kind; json parse error: .*line 1 column 16"):
        load('{"apiVersion": }')


def test_not_text() -> None:
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load("\ud800")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^open .*/missing.yaml: no such file or directory$"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match=r"^open .*: is a directory$"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{" + JSON_HEAD + ',"parallelism":4,"enableProfiling":true,"leaderElection":null}',
        HEAD + "parallelism: 4\nenableProfiling: yes\nleaderElection:\n",
        HEAD + "parallelism: 0x4\nenableProfiling: on\n---\nsecond: document\n",
        HEAD + "parallelism: 4.0\nenableProfiling: true\n",
        "\ufeff" + HEAD + "&p parallelism: &v 4\nenableProfiling: True\n",
        HEAD + "<<: {parallelism: 4, enableProfiling: false}\nenableProfiling: true\n",
    ],
)
def test_same_values_in_many_writings(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    for configuration in (load(text), load(text.encode()), load(path)):
        assert configuration == load(document(parallelism=4, enableProfiling=True))


@pytest.mark.parametrize(
    "scalar, value",
    [
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("0o17", 15),
        ("017", 15),
        ("1_000", 1000),
        ("-0b11", -3),
        ("1e3", 1000),
        ("1.5", 1.5),
        (".5", 0.5),
        ("~", None),
        ("y", True),
        ("off", False),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("1e999", "1e999"),
        ("0x", "0x"),
        ("-", [None]),
    ],
)
def test_plain_scalars_as_goyaml_reads_them(scalar: str, value: object) -> None:
    text = (
        HEAD
        + f"profiles:\n- pluginConfig:\n  - name: Mine\n    args: {{}}\n  - name: Other\n    args:\n      {scalar}\n"
    )
    assert load(text).profiles[0].plugin_config[1].args == value
