"""The command line of `koordsched run`, parsed: one frozen group per subject (core spec 2.3)."""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from koordsched.config.catalog import IN_TREE, PluginCatalog
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.loading import default_configuration, load, read_file
from koordsched.config.wire import KubeSchedulerConfiguration

_TEN_SECONDS = Duration.parse("10s")
_FIVE_MINUTES = Duration.parse("5m")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureServing:
    """HTTPS. Port 0 switches it off; without certificate files and directory one is made up in memory."""

    port: int = 10259
    bind_address: str = "0.0.0.0"
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_curve_preferences: tuple[int, ...] = ()
    tls_min_version: str = ""
    tls_sni_cert_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsecureServing:
    """Plain HTTP, off unless a port is set."""

    address: str = "0.0.0.0"
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Who a client of our endpoints is: client certificates, or tokens reviewed by the API server."""

    kubeconfig: str = ""
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    token_cache_ttl: Duration = _TEN_SECONDS
    client_ca_file: str = ""
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: tuple[str, ...] = ()
    requestheader_username_headers: tuple[str, ...] = ("x-remote-user",)
    requestheader_group_headers: tuple[str, ...] = ("x-remote-group",)
    requestheader_extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """What a client may read, as reviewed by the API server."""

    kubeconfig: str = ""
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    authorized_ttl: Duration = _TEN_SECONDS
    unauthorized_ttl: Duration = _TEN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Which metrics are shown, and which values of their labels."""

    show_hidden_for_version: str = ""
    disabled: tuple[str, ...] = ()
    allow_labels: tuple[str, ...] = ()
    allow_labels_manifest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """Verbosity and form (`text` or `json`) of the log."""

    verbosity: int = 0
    format: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What is recorded for `koordsched replay`, if there is a path.

    `max_size`: bytes of a segment, 0 = unlimited; `keep`: segments beside the one that is written.
    """

    path: str = ""
    max_size: int = 256 << 20
    keep: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionOverrides:
    """Election settings given on the command line; None = not given, the file's value counts."""

    leader_elect: bool | None = None
    lease_duration: Duration | None = None
    renew_deadline: Duration | None = None
    retry_period: Duration | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecated:
    """Settings a configuration file has its own fields for: only used without one; None = not given."""

    profiling: bool | None = None
    contention_profiling: bool | None = None
    kube_api_content_type: str | None = None
    kube_api_qps: float | None = None
    kube_api_burst: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything the command line of `run` says. Immutable."""

    config: str = ""
    master: str = ""
    kubeconfig: str = ""
    write_config_to: str = ""
    pod_max_in_unschedulable_pods_duration: Duration = _FIVE_MINUTES
    max_pods_binding: int = 256
    fair_namespaces: bool = False
    allow_unimplemented_plugins: bool = False
    controller_plugins: tuple[str, ...] = ("*",)
    feature_gates: FeatureGates
    secure_serving: SecureServing = SecureServing()
    insecure_serving: InsecureServing = InsecureServing()
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()
    metrics: Metrics = Metrics()
    logging: Logging = Logging()
    journal: Journal = Journal()
    leader_election: LeaderElectionOverrides = LeaderElectionOverrides()
    deprecated: Deprecated = Deprecated()

    def configuration(self, catalog: PluginCatalog = IN_TREE) -> KubeSchedulerConfiguration:
        """The configuration file, or the defaults without one, with what the command line overrides.

        Raises ConfigError.
        """
        if not self.config:
            return default_configuration(catalog=catalog, gates=self.feature_gates, adjust=self._without_file)
        return load(read_file(self.config), catalog=catalog, gates=self.feature_gates, adjust=self._over_file)

    def runs_controller(self, plugin: str) -> bool:
        """Whether the controller of a plugin is wanted: the first that names it decides, then whether there is a *."""
        for name in self.controller_plugins:
            if name in (plugin, f"-{plugin}"):
                return name == plugin
        return "*" in self.controller_plugins

    def ignored(self) -> list[str]:
        """A text for each given flag without effect that users may rely on.

        Deprecated ones beside `--config`, and curves, of which Python's ssl module offers no choice.
        """
        texts = []
        if self.secure_serving.tls_curve_preferences:
            texts.append("--tls-curve-preferences has no effect: the TLS library's own curves are offered")
        if self.config:
            given = (name for name in Deprecated.__slots__ if getattr(self.deprecated, name) is not None)
            texts += [f"--{name.replace('_', '-')} is ignored because --config is set" for name in given]
        return texts

    def _over_file(self, configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        """Election flags win; `--kubeconfig` fills in where the file names none (upstream ignores it then)."""
        connection = configuration.client_connection
        if not connection.kubeconfig:
            connection = msgspec.structs.replace(connection, kubeconfig=self.kubeconfig)
        return self._elect(msgspec.structs.replace(configuration, client_connection=connection))

    def _without_file(self, configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        flags = self.deprecated
        connection = _replace_given(
            configuration.client_connection,
            content_type=flags.kube_api_content_type,
            qps=flags.kube_api_qps,
            burst=flags.kube_api_burst,
        )
        changed = _replace_given(
            configuration,
            client_connection=msgspec.structs.replace(connection, kubeconfig=self.kubeconfig),
            enable_profiling=flags.profiling,
            enable_contention_profiling=flags.contention_profiling,
        )
        return self._elect(changed)

    def _elect(self, configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        flags = self.leader_election
        given = {name: getattr(flags, name) for name in LeaderElectionOverrides.__slots__}
        election = _replace_given(configuration.leader_election, **given)
        return msgspec.structs.replace(configuration, leader_election=election)


_Replaced = TypeVar("_Replaced", bound=msgspec.Struct)


def _replace_given(struct: _Replaced, **changes: object) -> _Replaced:
    """The struct with the changes that are not None."""
    return msgspec.structs.replace(struct, **{name: value for name, value in changes.items() if value is not None})
