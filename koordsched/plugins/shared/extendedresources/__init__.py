"""Extended resources that DRA serves: what plugins that count resources have to know of them (dra spec 3.10 and 4).

`ExtendedResources.shared(handle)` is the one of the cluster. `classes` says which DeviceClass stands for a resource;
`scored_devices` are what scoring reads; DynamicResources registers a `DeviceCounts` with `count_with`.
"""

from koordsched.plugins.shared.extendedresources.classes import (
    IMPLICIT_PREFIX,
    ClassesByResource,
    may_have_class,
    resources_of,
)
from koordsched.plugins.shared.extendedresources.service import (
    GATE,
    Amounts,
    DeviceCounts,
    ExtendedResources,
    ScoredDevices,
    scored_devices,
)

__all__ = [
    "GATE",
    "IMPLICIT_PREFIX",
    "Amounts",
    "ClassesByResource",
    "DeviceCounts",
    "ExtendedResources",
    "ScoredDevices",
    "may_have_class",
    "resources_of",
    "scored_devices",
]
