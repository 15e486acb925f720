"""The command line of `run`: values, defaults, precedence over the file, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from koordsched.cli.run import run
from koordsched.cli.run_flags import FLAG_NAMES, run_options
from koordsched.config import ConfigError, Duration, FeatureGates
from koordsched.config.options import Options
from tests.config.documents import document


def parse(*arguments: str) -> tuple[Result, Options | None]:
    seen: list[Options] = []

    @click.command(context_settings=dict(FLAG_NAMES))
    @run_options
    def command(options: Options) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, arguments)
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
    "network topology": (
        ["--feature-gates=NetworkTopologyManager=false", "--enable-network-topology-manager"],
        lambda o: o.feature_gates.enabled("NetworkTopologyManager"),
        True,
    ),
    "network topology, off": (
        ["--enable-network-topology-manager=false", "--feature-gates=NetworkTopologyManager=true"],
        lambda o: o.feature_gates.enabled("NetworkTopologyManager"),
        False,
    ),
    "gates": (
        ["--feature-gates=GangScheduling=true,kube:NodeSwap=false", "--feature-gates", "DRADeviceTaints=0"],
        lambda o: (o.feature_gates.enabled("GangScheduling"), o.feature_gates.enabled("DRADeviceTaints")),
        (True, False),
    ),
    "underscores": (
        ["--leader_elect=false", "--tls_cipher_suites", "A_B,C"],
        lambda o: (o.leader_election.leader_elect, o.secure_serving.tls_cipher_suites),
        (False, ("A_B", "C")),
    ),
    "the network topology manager": (
        ["--enable-network-topology-manager"],
        lambda o: o.feature_gates.enabled("NetworkTopologyManager"),
        True,
    ),
    "the network topology manager, switched off": (
        ["--enable-network-topology-manager=false", "--feature-gates=NetworkTopologyManager=true"],
        lambda o: o.feature_gates.enabled("NetworkTopologyManager"),
        False,
    ),
    "the network topology manager by its gate": (
        ["--feature-gates=NetworkTopologyManager=true"],
        lambda o: o.feature_gates.enabled("NetworkTopologyManager"),
        True,
    ),
    "the network topology manager, not given": (
        ["--feature-gates=GangPendingPodsConditionPatch=false"],
        lambda o: (
            o.feature_gates.enabled("NetworkTopologyManager"),
            o.feature_gates.enabled("GangPendingPodsConditionPatch"),
        ),
        (False, False),
    ),
    "controllers": (["--controller-plugins=*,-A"], lambda o: o.controller_plugins, ("*", "-A")),
    "curves": (["--tls-curve-preferences=29,4588"], lambda o: o.secure_serving.tls_curve_preferences, (29, 4588)),
    "without effect": (
        ["--vmodule=a=3", "--emulated-version=kube=1.35", "--permit-port-sharing", "--log-flush-frequency=5s"],
        lambda o: o.logging.verbosity,
        0,
    ),
}


@pytest.mark.parametrize(
    "given, running",
    [
        ([], "ABC"),
        (["--controller-plugins=*"], "ABC"),
        (["--controller-plugins=A"], "A"),
        (["--controller-plugins=A,C"], "AC"),
        (["--controller-plugins=*,-A"], "BC"),
        (["--controller-plugins=-A,*"], "BC"),
        (["--controller-plugins=A,-A"], "A"),
        (["--controller-plugins=-A"], ""),
        (["--controller-plugins="], ""),
    ],
)
def test_which_controllers_run(given: list[str], running: str) -> None:
    parsed = options(*given)
    assert "".join(name for name in "ABC" if parsed.runs_controller(name)) == running


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
        (["--tls-curve-preferences=X25519"], 'strconv.Atoi: parsing "X25519": invalid syntax'),
        (["--tls-curve-preferences=29,2147483648"], 'strconv.Atoi: parsing "2147483648": value out of range'),
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


FLAGS_OF_KUBE_SCHEDULER = """
--allow-metric-labels --allow-metric-labels-manifest --authentication-kubeconfig --authentication-skip-lookup
--authentication-token-webhook-cache-ttl --authentication-tolerate-lookup-failure --authorization-always-allow-paths
--authorization-kubeconfig --authorization-webhook-cache-authorized-ttl --authorization-webhook-cache-unauthorized-ttl
--bind-address --cert-dir --client-ca-file --config --contention-profiling --disable-http2-serving --disabled-metrics
--emulated-version --feature-gates --help --http2-max-streams-per-connection
--kube-api-burst --kube-api-content-type --kube-api-qps --kubeconfig --leader-elect --leader-elect-lease-duration
--leader-elect-renew-deadline --leader-elect-resource-lock --leader-elect-resource-name
--leader-elect-resource-namespace --leader-elect-retry-period --log-flush-frequency --log-json-info-buffer-size
--log-json-split-stream --log-text-info-buffer-size --log-text-split-stream --logging-format --master
--min-compatibility-version --permit-address-sharing --permit-port-sharing --pod-max-in-unschedulable-pods-duration
--profiling --requestheader-allowed-names --requestheader-client-ca-file --requestheader-extra-headers-prefix
--requestheader-group-headers --requestheader-uid-headers --requestheader-username-headers --secure-port
--show-hidden-metrics-for-version --tls-cert-file --tls-cipher-suites --tls-curve-preferences --tls-min-version
--tls-private-key-file --tls-sni-cert-key --v --version --vmodule --write-config-to
"""
"""kube-scheduler 1.36 --help."""


def test_every_flag_of_kube_scheduler_is_known() -> None:
    known = {name for parameter in run.params for name in parameter.opts} | {"--help"}
    assert set(FLAGS_OF_KUBE_SCHEDULER.split()) - known == set()


FLAGS_OF_KOORD_SCHEDULER = """
--controller-plugins --debug-diagnosis --debug-diagnosis-blocking --debug-diagnosis-queue-size
--debug-diagnosis-worker-count --debug-filters --debug-scores --enable-network-topology-manager
--enable-workload-auditor --scheduler-monitor-period --scheduling-drop-unhandled-timeout --scheduling-timeout
--workload-auditor-metric-labels
"""
"""What koord-scheduler 1.8 has besides."""


def test_flags_of_koord_scheduler_are_known() -> None:
    known = {name for parameter in run.params for name in parameter.opts}
    assert set(FLAGS_OF_KOORD_SCHEDULER.split()) - known == set()
    result, parsed = parse("-s=4", "-f", "-d", "--scheduling-timeout=30s", "--enable-workload-auditor")
    assert result.exit_code == 0
    assert parsed is not None
    assert parsed.ignored() == []


def test_curves_are_said_to_have_no_effect() -> None:
    assert options("--tls-curve-preferences=29").ignored() == [
        "--tls-curve-preferences has no effect: the TLS library's own curves are offered"
    ]


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
        # Of other components, of 1.34, 1.36, and of client-go: one list for all components of a cluster.
        (["MemoryManager=true,NativeHistograms=true,StaleControllerConsistencyJob=false,AtomicFIFO=false"], {}),
        (["AllBeta=false"], {"DRAPrioritizedList": True, "DRAResourceClaimGranularStatusAuthorization": False}),
    ],
)
def test_feature_gates(texts: list[str], expected: dict[str, bool]) -> None:
    gates = FeatureGates.parse(texts)
    assert {name: gates.enabled(name) for name in expected} == expected
