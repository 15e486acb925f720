"""DynamicResources: devices that drivers publish, for pods that claim them (dra spec).

* `plugin` is the plugin; `cel` has the expressions that select devices.
"""

from koordsched.plugins.dynamicresources.plugin import DynamicResources

__all__ = ["DynamicResources"]
