"""The flags of `koordsched run`, by the names and defaults of kube-scheduler and koord-scheduler.

`run_options` is a decorator: the command receives one `Options` instead of some sixty parameters.
Flags take values as in Go: `--leader-elect`, `--leader-elect=false`, `-v=2`. With `FLAG_NAMES` as the command's context
settings they may be written with underscores, as in component-base `cli/flag/flags.go`: `--leader_elect`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

import koordsched
from koordsched.cli.flag_types import boolean, comma_list, duration, integers, kubernetes_version, level, size
from koordsched.config.errors import ConfigError
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER, FeatureGates
from koordsched.config.options import (
    Authentication,
    Authorization,
    Deprecated,
    InsecureServing,
    Journal,
    LeaderElectionOverrides,
    Logging,
    Metrics,
    Options,
    SecureServing,
)

_NO_EFFECT = "Accepted, without effect here."
_DEPRECATED = "Deprecated; ignored with --config, which has a field for it."
_UNUSED = "unused"

_GROUPS: dict[str, type[Any]] = {
    "secure_serving": SecureServing,
    "insecure_serving": InsecureServing,
    "authentication": Authentication,
    "authorization": Authorization,
    "metrics": Metrics,
    "logging": Logging,
    "journal": Journal,
    "leader_election": LeaderElectionOverrides,
    "deprecated": Deprecated,
}

FLAG_NAMES: Mapping[str, Any] = {"token_normalize_func": lambda name: name.replace("_", "-")}

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _flag(name: str, target: str, kind: Any, text: str, **more: Any) -> _Decorator:
    """A flag that fills `target`: a field of Options, or `group.field`, whose default it takes over."""
    group, _, attribute = target.rpartition(".")
    owner = _GROUPS[group] if group else Options
    default = next((field.default for field in fields(owner) if field.name == attribute), None)
    settings: dict[str, Any] = {"default": default, **_optional_value(kind), **more}
    if default not in (None, "", ()):
        text += f"  [default: {_shown(default)}]"
    return click.option(*name.split(), target.replace(".", "__"), type=kind, help=text, **settings)


def _optional_value(kind: Any) -> dict[str, Any]:
    """A boolean flag may be given without a value; this is how click expresses it."""
    return {"is_flag": False, "flag_value": "true"} if kind is boolean else {}


def _unused_flag(name: str, kind: Any = str, text: str = "") -> _Decorator:
    parameter = f"{_UNUSED}__{name.split()[-1].lstrip('-').replace('-', '_')}"
    text = f"{text} {_NO_EFFECT}".strip()
    return click.option(*name.split(), parameter, type=kind, help=text, **_optional_value(kind))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"koordsched {koordsched.__version__}")
        context.exit()


_FLAGS: tuple[_Decorator, ...] = (
    _flag("--config", "config", str, "The configuration file (KubeSchedulerConfiguration)."),
    _flag("--write-config-to", "write_config_to", str, "Write the complete configuration to this file and exit."),
    _flag("--master", "master", str, "Address of the API server; wins over the kubeconfig."),
    _flag(
        "--kubeconfig",
        "kubeconfig",
        str,
        "Kubeconfig of the API server, unless the configuration file has one; without either, in-cluster credentials.",
    ),
    _flag(
        "--pod-max-in-unschedulable-pods-duration",
        "pod_max_in_unschedulable_pods_duration",
        duration,
        "Retry an unschedulable pod after this time, even without an event.",
    ),
    _flag(
        "--max-pods-binding",
        "max_pods_binding",
        click.IntRange(1),
        "Maximum number of bindings in flight: when it is reached, no more pods are placed until the API server "
        "catches up. Pods that wait on Permit or for their volumes do not count.",
    ),
    _flag(
        "--fair-namespaces",
        "fair_namespaces",
        boolean,
        "Among pods of equal priority, take the namespaces in turn instead of the oldest pod first.",
    ),
    _flag(
        "--allow-unimplemented-plugins",
        "allow_unimplemented_plugins",
        boolean,
        "Start even if the configuration enables plugins that are not implemented; they do nothing.",
    ),
    # Leader election
    _flag("--leader-elect", "leader_election.leader_elect", boolean, "Elect one of several replicas."),
    _flag("--leader-elect-lease-duration", "leader_election.lease_duration", duration, "How long a lease is valid."),
    _flag(
        "--leader-elect-renew-deadline",
        "leader_election.renew_deadline",
        duration,
        "The leader steps down if it cannot renew in this time.",
    ),
    _flag(
        "--leader-elect-retry-period",
        "leader_election.retry_period",
        duration,
        "Time between attempts to get or renew the lease.",
    ),
    _flag("--leader-elect-resource-lock", "leader_election.resource_lock", str, "Kind of the lock: leases."),
    _flag("--leader-elect-resource-name", "leader_election.resource_name", str, "Name of the lease."),
    _flag("--leader-elect-resource-namespace", "leader_election.resource_namespace", str, "Namespace of the lease."),
    # Secure serving
    _flag("--secure-port", "secure_serving.port", click.IntRange(0, 65535), "HTTPS port; 0 = none."),
    _flag("--bind-address", "secure_serving.bind_address", str, "Address of the HTTPS port."),
    _flag("--cert-dir", "secure_serving.cert_dir", str, "Directory for a self-signed certificate; empty = in memory."),
    _flag("--tls-cert-file", "secure_serving.tls_cert_file", str, "Certificate, with its chain."),
    _flag("--tls-private-key-file", "secure_serving.tls_private_key_file", str, "Private key of the certificate."),
    _flag("--tls-cipher-suites", "secure_serving.tls_cipher_suites", comma_list, "Cipher suites, by Go's names."),
    _flag(
        "--tls-curve-preferences",
        "secure_serving.tls_curve_preferences",
        integers,
        f"Key exchange mechanisms, by their numbers. {_NO_EFFECT}",
    ),
    _flag(
        "--tls-min-version",
        "secure_serving.tls_min_version",
        click.Choice(["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
        "Lowest TLS version.",
        default=None,
    ),
    _flag(
        "--tls-sni-cert-key",
        "secure_serving.tls_sni_cert_key",
        str,
        "CERT,KEY[:DOMAIN,...] for a server name; may be repeated.",
        multiple=True,
    ),
    _unused_flag("--http2-max-streams-per-connection", int),
    _unused_flag("--disable-http2-serving", boolean),
    _unused_flag("--permit-address-sharing", boolean),
    _unused_flag("--permit-port-sharing", boolean),
    # Insecure serving
    _flag("--address", "insecure_serving.address", str, "Address of the plain HTTP port."),
    _flag(
        "--port",
        "insecure_serving.port",
        click.IntRange(0, 65535),
        "Plain HTTP port (koord-scheduler uses 10251); 0 = none.",
    ),
    # Authentication
    _flag(
        "--authentication-kubeconfig",
        "authentication.kubeconfig",
        str,
        "Kubeconfig of the API server that reviews tokens; empty = the one scheduled for.",
    ),
    _flag(
        "--authentication-skip-lookup",
        "authentication.skip_lookup",
        boolean,
        "Do not read the client CA and proxy settings from the API server.",
    ),
    _flag(
        "--authentication-tolerate-lookup-failure",
        "authentication.tolerate_lookup_failure",
        boolean,
        "Start even if reading them fails; every request is then anonymous.",
    ),
    _flag(
        "--authentication-token-webhook-cache-ttl",
        "authentication.token_cache_ttl",
        duration,
        "How long a token review is cached.",
    ),
    _flag("--client-ca-file", "authentication.client_ca_file", str, "CA that signs client certificates."),
    _flag(
        "--requestheader-client-ca-file",
        "authentication.requestheader_client_ca_file",
        str,
        "CA that signs the certificates of authenticating proxies.",
    ),
    _flag(
        "--requestheader-allowed-names",
        "authentication.requestheader_allowed_names",
        comma_list,
        "Common names of these certificates; empty = any.",
    ),
    _flag(
        "--requestheader-username-headers",
        "authentication.requestheader_username_headers",
        comma_list,
        "Headers that carry the user's name.",
    ),
    _flag(
        "--requestheader-group-headers",
        "authentication.requestheader_group_headers",
        comma_list,
        "Headers that carry the groups.",
    ),
    _flag(
        "--requestheader-extra-headers-prefix",
        "authentication.requestheader_extra_headers_prefix",
        comma_list,
        "Prefixes of headers that carry extra information.",
    ),
    _unused_flag("--requestheader-uid-headers", comma_list),
    # Authorization
    _flag(
        "--authorization-kubeconfig",
        "authorization.kubeconfig",
        str,
        "Kubeconfig of the API server that reviews access; empty = the one scheduled for.",
    ),
    _flag(
        "--authorization-always-allow-paths", "authorization.always_allow_paths", comma_list, "Paths open to everyone."
    ),
    _flag(
        "--authorization-webhook-cache-authorized-ttl",
        "authorization.authorized_ttl",
        duration,
        "How long an allowed access review is cached.",
    ),
    _flag(
        "--authorization-webhook-cache-unauthorized-ttl",
        "authorization.unauthorized_ttl",
        duration,
        "How long a denied access review is cached.",
    ),
    # Feature gates
    click.option(
        "--feature-gates",
        "feature_gates",
        multiple=True,
        help="Name=true,Other=false. Gates of other components are accepted.",
    ),
    click.option(
        "--enable-network-topology-manager",
        "network_topology_manager",
        type=boolean,
        default=None,
        help="Keep the tree of network topology layers that gangs are placed by; short for the feature gate "
        f"{NETWORK_TOPOLOGY_MANAGER}.",
        **_optional_value(boolean),
    ),
    _flag(
        "--controller-plugins",
        "controller_plugins",
        comma_list,
        "Plugins whose controllers run: * for all, NAME, or -NAME for none of this one.",
    ),
    _unused_flag("--emulated-version", kubernetes_version, "1.33 to 1.36."),
    _unused_flag("--min-compatibility-version", kubernetes_version, "1.33 to 1.36."),
    _unused_flag("--emulation-forward-compatible", boolean),
    # Of koord-scheduler: watching over slow cycles, and what it writes into its log about decisions
    _unused_flag("--scheduler-monitor-period", duration),
    _unused_flag("--scheduling-timeout", duration),
    _unused_flag("--scheduling-drop-unhandled-timeout", duration),
    _unused_flag("-s --debug-scores", level),
    _unused_flag("-f --debug-filters", boolean),
    _unused_flag("-d --debug-diagnosis", boolean),
    _unused_flag("--debug-diagnosis-blocking", boolean),
    _unused_flag("--debug-diagnosis-queue-size", int),
    _unused_flag("--debug-diagnosis-worker-count", int),
    _unused_flag("--enable-workload-auditor", boolean),
    _unused_flag("--workload-auditor-metric-labels"),
    # Metrics
    _flag(
        "--show-hidden-metrics-for-version",
        "metrics.show_hidden_for_version",
        str,
        "Show metrics hidden since this version.",
    ),
    _flag("--disabled-metrics", "metrics.disabled", comma_list, "Metrics not to record."),
    _flag(
        "--allow-metric-labels",
        "metrics.allow_labels",
        str,
        "Values a label may have: METRIC,LABEL='value,value'; may be repeated.",
        multiple=True,
    ),
    _flag("--allow-metric-labels-manifest", "metrics.allow_labels_manifest", str, "File with allowed label values."),
    # Logging
    _flag("-v --v", "logging.verbosity", level, "Verbosity of the log."),
    _flag("--logging-format", "logging.format", click.Choice(["text", "json"]), "Format of the log."),
    _unused_flag("--vmodule"),
    _unused_flag("--log-flush-frequency", duration),
    _unused_flag("--log-text-split-stream", boolean),
    _unused_flag("--log-json-split-stream", boolean),
    _unused_flag("--log-text-info-buffer-size"),
    _unused_flag("--log-json-info-buffer-size"),
    # Journal
    _flag("--journal", "journal.path", str, "Record inputs and decisions in this file, for `koordsched replay`."),
    _flag(
        "--journal-max-size",
        "journal.max_size",
        size,
        "Size at which a new segment begins, such as 100Mi; 0 = never.",
    ),
    _flag(
        "--journal-keep",
        "journal.keep",
        click.IntRange(0, 999),
        "Number of older segments (FILE.1, FILE.2, ...) to keep.",
    ),
    # Deprecated
    _flag("--profiling", "deprecated.profiling", boolean, f"Profiling endpoints. {_DEPRECATED}"),
    _flag("--contention-profiling", "deprecated.contention_profiling", boolean, f"{_NO_EFFECT} {_DEPRECATED}"),
    _flag("--kube-api-qps", "deprecated.kube_api_qps", float, f"Requests per second. {_DEPRECATED}"),
    _flag("--kube-api-burst", "deprecated.kube_api_burst", int, f"Requests at once. {_DEPRECATED}"),
    _flag(
        "--kube-api-content-type",
        "deprecated.kube_api_content_type",
        str,
        f"Encoding of lists. {_DEPRECATED}",
    ),
    click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version and exit.",
    ),
)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all flags to a click command and pass them to it as the one keyword argument `options`."""

    @functools.wraps(command)
    def with_options(*args: Any, **parameters: Any) -> Any:
        return command(*args, options=_take_options(parameters), **parameters)

    decorated: Callable[..., Any] = with_options
    for flag in reversed(_FLAGS):
        decorated = flag(decorated)
    return decorated


def _take_options(parameters: dict[str, Any]) -> Options:
    """Move our parameters into Options. Raises click.BadParameter for unusable feature gates."""
    for name in [name for name in parameters if name.startswith(f"{_UNUSED}__")]:
        parameters.pop(name)
    given = list(parameters.pop("feature_gates"))
    manager = parameters.pop("network_topology_manager")
    if manager is not None:
        given.append(f"{NETWORK_TOPOLOGY_MANAGER}={str(manager).lower()}")
    try:
        gates = FeatureGates.parse(given)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--feature-gates") from error
    groups = {
        group: kind(**{f.name: _given(f.default, parameters.pop(f"{group}__{f.name}")) for f in fields(kind)})
        for group, kind in _GROUPS.items()
    }
    own = {
        field.name: _given(field.default, parameters.pop(field.name))
        for field in fields(Options)
        if field.name not in (*_GROUPS, "feature_gates")
    }
    return Options(feature_gates=gates, **groups, **own)


def _given(default: Any, value: Any) -> Any:
    return default if value is None else value
