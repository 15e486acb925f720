"""`KubeSchedulerConfiguration`, kubescheduler.config.k8s.io/v1, field by field as it stands in the file.

Immutable. A field's default here is upstream's where that does not depend on another field; `defaults.py` fills the
rest. None means unset. Source: staging `kube-scheduler/config/v1/types.go`, `component-base/config/v1alpha1`.
"""

from typing import Annotated, Any

import msgspec

from koordsched.config.decoding import OMIT_EMPTY, Int32, Int64
from koordsched.config.duration import Duration

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"


class LeaderElectionConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How replicas agree on the one that schedules (client-go leader election)."""

    leader_elect: bool = True
    lease_duration: Duration = Duration(0)
    renew_deadline: Duration = Duration(0)
    retry_period: Duration = Duration(0)
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnectionConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The connection to the API server. `qps` and `burst` are 0 when the file does not set them."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: Int32 = 0


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin's name and, for scoring, its weight (0 = unset)."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(msgspec.Struct, frozen=True, rename="camel"):
    """What the user adds to and removes from one extension point; `*` in `disabled` removes all."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Plugins(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plugin set for each extension point, and `multiPoint` for all a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()


class PluginConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of one plugin: a `PluginArgs` once decoded, plain values as long as the plugin is unknown."""

    name: str = ""
    args: Any = None


class KubeSchedulerProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plugins, and their arguments, for the pods that name this scheduler."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ExtenderTLSConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """TLS towards an extender; data fields win over the file of the same name."""

    insecure: Annotated[bool, OMIT_EMPTY] = False
    server_name: Annotated[str, OMIT_EMPTY] = ""
    cert_file: Annotated[str, OMIT_EMPTY] = ""
    key_file: Annotated[str, OMIT_EMPTY] = ""
    ca_file: Annotated[str, OMIT_EMPTY] = ""
    cert_data: Annotated[bytes, OMIT_EMPTY] = b""
    key_data: Annotated[bytes, OMIT_EMPTY] = b""
    ca_data: Annotated[bytes, OMIT_EMPTY] = b""


class ExtenderManagedResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An extended resource that sends its pods to the extender, perhaps instead of NodeResourcesFit."""

    name: str = ""
    ignored_by_scheduler: Annotated[bool, OMIT_EMPTY] = False


class Extender(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An HTTP extender; an empty verb is not called. `http_timeout` 0 means 5 s."""

    url_prefix: str = ""
    filter_verb: Annotated[str, OMIT_EMPTY] = ""
    preempt_verb: Annotated[str, OMIT_EMPTY] = ""
    prioritize_verb: Annotated[str, OMIT_EMPTY] = ""
    weight: Annotated[int, *Int64.__metadata__, OMIT_EMPTY] = 0
    bind_verb: Annotated[str, OMIT_EMPTY] = ""
    enable_https: Annotated[bool, OMIT_EMPTY] = msgspec.field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Duration = Duration(0)
    node_cache_capable: Annotated[bool, OMIT_EMPTY] = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: Annotated[bool, OMIT_EMPTY] = False


class KubeSchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file, once loaded defaulted and valid."""

    parallelism: Int32 = 16
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 = 0
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: Annotated[bool, OMIT_EMPTY] = False
