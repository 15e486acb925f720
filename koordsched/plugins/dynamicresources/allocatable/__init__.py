"""Devices that take something of their node's allocatable resources (dra spec 3.11, gate DRANodeAllocatableResources).

* `MappedDevices` knows which devices take what; `takings` works out what the claims of a pod take, and what is wrong
  with that; `Consumers` knows which pods on a node have which of these claims; `room` compares with what is free;
* `NodeAllocatable` is all of it for the plugin: what Filter adds, and what Reserve makes count.

On the node it counts with the requests of the pod (`cluster.claimedresources`). While the gate is off, none of
this is made.
"""

from koordsched.plugins.dynamicresources.allocatable.filtering import NodeAllocatable
from koordsched.plugins.dynamicresources.allocatable.mapped import MappedDevices
from koordsched.plugins.dynamicresources.allocatable.takings import TakingFailed

__all__ = ["MappedDevices", "NodeAllocatable", "TakingFailed"]
