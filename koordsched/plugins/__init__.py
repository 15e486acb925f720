"""The plugins, one module or package each, named as in the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.cluster.kinds import Kind, registered
from koordsched.framework.profile import PluginFactory
from koordsched.plugins.defaultbinder import DefaultBinder
from koordsched.plugins.defaultpreemption import DefaultPreemption
from koordsched.plugins.dynamicresources import DynamicResources
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.imagelocality import ImageLocality
from koordsched.plugins.interpodaffinity.plugin import InterPodAffinity
from koordsched.plugins.nodeaffinity import NodeAffinity
from koordsched.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from koordsched.plugins.nodename import NodeName
from koordsched.plugins.nodeports import NodePorts
from koordsched.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from koordsched.plugins.noderesourcesfit.plugin import NodeResourcesFit
from koordsched.plugins.nodeunschedulable import NodeUnschedulable
from koordsched.plugins.nodevolumelimits.plugin import NodeVolumeLimits
from koordsched.plugins.podtopologyspread.plugin import PodTopologySpread
from koordsched.plugins.prioritysort import PrioritySort
from koordsched.plugins.schedulinggates import SchedulingGates
from koordsched.plugins.tainttoleration import TaintToleration
from koordsched.plugins.volumebinding.plugin import VolumeBinding
from koordsched.plugins.volumerestrictions.plugin import VolumeRestrictions
from koordsched.plugins.volumezone import VolumeZone

IN_TREE: Mapping[str, PluginFactory] = {
    "SchedulingGates": SchedulingGates,
    "PrioritySort": PrioritySort,
    "NodeUnschedulable": NodeUnschedulable,
    "NodeName": NodeName,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinity,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit,
    "VolumeRestrictions": VolumeRestrictions,
    "NodeVolumeLimits": NodeVolumeLimits,
    "VolumeBinding": VolumeBinding,
    "VolumeZone": VolumeZone,
    "PodTopologySpread": PodTopologySpread,
    "InterPodAffinity": InterPodAffinity,
    "DynamicResources": DynamicResources,
    "DefaultPreemption": DefaultPreemption,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
    "NodeDeclaredFeatures": NodeDeclaredFeatures,
    "ElasticQuota": ElasticQuota,
}
"""Factories by name, for the profile runtime."""

KINDS: Mapping[tuple[str, str], Kind[Any]] = {(kind.api_version, kind.name): kind for kind in registered()}
"""Every kind that the scheduler can read, those of plugins included, by apiVersion and kind."""
