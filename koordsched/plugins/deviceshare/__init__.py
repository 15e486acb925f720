"""DeviceShare: GPUs, parts of GPUs, NICs and FPGAs for pods (deviceshare spec).

* `args` the plugin's arguments; `kinds` the ConfigMap of templates, annotations for vendors' device plugins.
* `compiled` is what a pod asks for; `supply` what the devices of a node have left for it.
* `allocator` chooses devices, with `gpus` (partitions, scopes), `generic` and `jointsearch`; `allocating` adds the
  amounts.
* `feasibility` filters and `nodescores` scores many nodes at once; `devicescore` rates devices.
* `hints` says which NUMA nodes can serve a pod. `templates` are parts of GPUs that may be given out, `templatesource`
  reads them. `adapters` tells vendors' device plugins.
* `explanation` has the numbers behind verdicts, `reasons` their texts; `metrics` counts devices.
* `reports` has the pages of the HTTP server and the command `koordsched devices`.

What nodes have and pods were given is in `plugins.shared.devices`.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.deviceshare.args import DeviceShareArgs, advise, validate, with_defaults
from koordsched.plugins.deviceshare.metrics import observe_devices
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.deviceshare.reports.pages import PAGES
from koordsched.plugins.deviceshare.reports.tables import VIEW

DECLARATION = Declaration(
    name=DeviceShare.name,
    factory=DeviceShare,
    entry=entry(
        "preFilter filter preScore score reserve preBind",
        ArgsKind(DeviceShareArgs, with_defaults, validate, by_constructor=True, advise=advise),
    ),
    observe=observe_devices,
    pages=PAGES,
    views=(VIEW,),
)
