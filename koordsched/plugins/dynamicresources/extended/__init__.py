"""Extended resources that DRA serves: the special claim, made by the scheduler (dra spec 3.10).

* `ServedResources(table, ExtendedResources.shared(handle).classes)` says for a pod of a shape which rows get which of
  its extended resources through DRA (`split`), and what the special claim requests there (`SpecialRequests`);
* `claim` makes the special claim and what is written about it, `SpecialClaims` finds one that exists already;
* `hints.registration` wakes a pod whose old claim is gone; `DeviceCounts` counts devices for scoring.

Which class stands for a resource is in `plugins.shared.extendedresources`: NodeResourcesFit reads it, too.
"""

from koordsched.plugins.dynamicresources.extended.devicecounts import DeviceCounts
from koordsched.plugins.dynamicresources.extended.existing import SpecialClaims
from koordsched.plugins.dynamicresources.extended.requests import ContainerRequests, SpecialRequests
from koordsched.plugins.dynamicresources.extended.served import ServedResources, Split

__all__ = ["ContainerRequests", "DeviceCounts", "ServedResources", "SpecialClaims", "SpecialRequests", "Split"]
