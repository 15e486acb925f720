"""The command line of `run`: values, defaults, precedence over the file, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from koordsched.cli.run_flags import run_options
from koordsched.config import ConfigError, Duration, FeatureGates
from koordsched.config.options import Options
from tests.config.documents import document


def parse(*arguments: str) -> tuple[Result, Options | None]:
    seen: list[Options] = []

    @click.command()
    @run_options
    def run(options: Options) -> None:
        seen.append(options)

    result = CliRunner().invoke(run, arguments)
    return result, seen[0] if seen else None


def options(*arguments: str) -> Options:
    result, parsed = parse(*arguments)
    assert parsed is not None, result.output
    return parsed


def test_defaults() -> None:
    parsed = options()
    assert parsed.pod_max_in_unschedulable_pods_duration == Duration.of(300)
    assert (parsed.secure_serving.port, parsed.secure_serving.bind_address) == (10259, "0.0.0.0")
    assert parsed.insecure_serving.port == 0
    assert parsed.authentication.tolerate_lookup_failure
    assert parsed.authorization.always_allow_paths == ("/healthz", "/readyz", "/livez")
    assert (parsed.logging.verbosity, parsed.logging.format) == (0, "text")
    assert parsed.configuration().leader_election.leader_elect


VALUES: dict[str, tuple[list[str], Callable[[Options], Any], Any]] = {
    "bare boolean": (["--leader-elect"], lambda o: o.leader_election.leader_elect, True),
    "bare boolean before another flag": (
        ["--leader-elect", "--config=x"],
        lambda o: (o.leader_election.leader_elect, o.config),
        (True, "x"),
    ),
    "boolean with a value": (["--leader-elect=false"], lambda o: o.leader_election.leader_elect, False),
    "boolean not given": ([], lambda o: o.leader_election.leader_elect, None),
    "default true": (
        ["--authentication-tolerate-lookup-failure=F"],
        lambda o: o.authentication.tolerate_lookup_failure,
        False,
    ),
    "duration": (["--leader-elect-lease-duration", "1m30s"], lambda o: o.leader_election.lease_duration.seconds, 90.0),
    "list": (["--tls-cipher-suites=A,B"], lambda o: o.secure_serving.tls_cipher_suites, ("A", "B")),
    "no paths": (["--authorization-always-allow-paths="], lambda o: o.authorization.always_allow_paths, ()),
    "repeated": (
        ["--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d"],
        lambda o: o.secure_serving.tls_sni_cert_key,
        ("a,b", "c,d"),
    ),
    "verbosity, short": (["-v=4"], lambda o: o.logging.verbosity, 4),
    "verbosity, apart": (["-v", "4"], lambda o: o.logging.verbosity, 4),
    "verbosity, long": (["--v=4"], lambda o: o.logging.verbosity, 4),
    "port": (
        ["--port=10251", "--address=127.0.0.1"],
        lambda o: (o.insecure_serving.address, o.insecure_serving.port),
        ("127.0.0.1", 10251),
    ),
    "gates": (
        ["--feature-gates=GangScheduling=true,kube:NodeSwap=false", "--feature-gates", "DRADeviceTaints=0"],
        lambda o: (o.feature_gates.enabled("GangScheduling"), o.feature_gates.enabled("DRADeviceTaints")),
        (True, False),
    ),
    "without effect": (
        ["--vmodule=a=3", "--emulated-version=kube=1.35", "--permit-port-sharing", "--log-flush-frequency=5s"],
        lambda o: o.logging.verbosity,
        0,
    ),
}


@pytest.mark.parametrize("arguments, read, value", VALUES.values(), ids=VALUES)
def test_values(arguments: list[str], read: Callable[[Options], Any], value: Any) -> None:
    assert read(options(*arguments)) == value


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["extra"], "Got unexpected extra argument (extra)"),
        (["--bogus"], "No such option '--bogus'"),
        (["--leader-elect=maybe"], 'strconv.ParseBool: parsing "maybe": invalid syntax'),
        (["--leader-elect-retry-period=5"], 'time: missing unit in duration "5"'),
        (["-v=x"], 'strconv.ParseInt: parsing "x": invalid syntax'),
        (["--secure-port=70000"], "70000 is not in the range 0<=x<=65535"),
        (["--logging-format=xml"], "'xml' is not one of 'text', 'json'"),
        (["--emulated-version=1.20"], "emulation version 1.20 is not between [1.33, 1.36]"),
        (["--feature-gates=Bogus=true"], "unrecognized feature gate: Bogus"),
        (["--feature-gates=GangScheduling"], "missing bool value for GangScheduling"),
        (
            ["--feature-gates=GangScheduling=on"],
            'invalid value of GangScheduling=on, err: strconv.ParseBool: parsing "on": invalid syntax',
        ),
        (
            ["--feature-gates=SchedulerQueueingHints=false"],
            "cannot set feature gate SchedulerQueueingHints to false, feature is locked to true",
        ),
    ],
)
def test_errors(arguments: list[str], message: str) -> None:
    result, parsed = parse(*arguments)
    assert parsed is None
    assert result.exit_code == 2
    assert message in result.output


def test_version() -> None:
    result, parsed = parse("--version")
    assert parsed is None
    assert result.exit_code == 0
    assert result.output.startswith("koordsched ")


def test_help_says_what_has_no_effect() -> None:
    help_text = " ".join(parse("--help")[0].output.split())
    assert "--vmodule TEXT Accepted, without effect here." in help_text
    assert "Deprecated; ignored with --config" in help_text


def test_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(document(leaderElection={"leaseDuration": "40s", "resourceName": "mine"}, enableProfiling=False))
    parsed = options(
        "--config",
        str(path),
        "--leader-elect-lease-duration=60s",
        "--kubeconfig=flag.conf",
        "--profiling=true",
        "--kube-api-qps=7",
    )
    configuration = parsed.configuration()
    assert configuration.leader_election.lease_duration == Duration.of(60)
    assert configuration.leader_election.resource_name == "mine"
    assert configuration.client_connection.kubeconfig == "flag.conf"
    assert configuration.client_connection.qps == 0
    assert not configuration.enable_profiling
    assert parsed.ignored() == [
        "--profiling is ignored because --config is set",
        "--kube-api-qps is ignored because --config is set",
    ]
    path.write_text(document(clientConnection={"kubeconfig": "file.conf"}))
    assert parsed.configuration().client_connection.kubeconfig == "file.conf"


def test_without_a_file() -> None:
    parsed = options(
        "--kubeconfig=k", "--kube-api-qps=7.5", "--kube-api-burst=9", "--profiling=false", "--leader-elect=0"
    )
    configuration = parsed.configuration()
    assert configuration.client_connection.kubeconfig == "k"
    assert (configuration.client_connection.qps, configuration.client_connection.burst) == (7.5, 9)
    assert not configuration.enable_profiling
    assert not configuration.leader_election.leader_elect
    assert parsed.ignored() == []


def test_flags_are_validated_with_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^leaderElection.resourceLock: Invalid value: \"endpoints\""):
        options("--leader-elect-resource-lock=endpoints").configuration()
    with pytest.raises(ConfigError, match=r"^open /nowhere: no such file or directory$"):
        options("--config=/nowhere").configuration()


@pytest.mark.parametrize(
    "texts, expected",
    [
        (["AllAlpha=true"], {"GangScheduling": True, "CoordinatedLeaderElection": False}),
        (["AllAlpha=true,GangScheduling=false"], {"GangScheduling": False, "StorageCapacityScoring": True}),
        (["AllBeta=false"], {"DRADeviceTaints": False, "SchedulerQueueingHints": True}),
        (["GangScheduling=true", " GangScheduling = false "], {"GangScheduling": False}),
        (["SchedulerQueueingHints=true"], {"SchedulerQueueingHints": True}),
        ([""], {"NodeDeclaredFeatures": True}),
    ],
)
def test_feature_gates(texts: list[str], expected: dict[str, bool]) -> None:
    gates = FeatureGates.parse(texts)
    assert {name: gates.enabled(name) for name in expected} == expected
