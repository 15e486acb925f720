"""The plugins, one module or package each, named as in the configuration file.

A plugin that brings more than itself (arguments, kinds of objects, a controller, pages, commands) is one folder and
declares all of it in one object: `BUILT_IN`. What the rest of the program reads of plugins is derived here, with those
that other distributions bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.cluster.kinds import Kind, registered
from koordsched.config.catalog import IN_TREE as DEFAULT_CATALOG
from koordsched.config.catalog import PluginCatalog
from koordsched.framework.controller import ControllerFactory
from koordsched.framework.declaration import Declaration
from koordsched.framework.profile import PluginFactory
from koordsched.plugins import (
    coscheduling,
    defaultprebind,
    deviceshare,
    dynamicresources,
    elasticquota,
    gangscheduling,
    gpufragmentation,
    loadaware,
    nodecircuitbreaker,
    nodenumaresource,
    noderesourcesfitplus,
    outoftree,
    reservation,
    scarceresourceavoidance,
    schedulinghint,
    workloadquarantine,
)
from koordsched.plugins.defaultbinder import DefaultBinder
from koordsched.plugins.defaultpreemption import DefaultPreemption
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

BUILT_IN: tuple[Declaration, ...] = (
    elasticquota.DECLARATION,
    loadaware.DECLARATION,
    noderesourcesfitplus.DECLARATION,
    scarceresourceavoidance.DECLARATION,
    nodenumaresource.DECLARATION,
    deviceshare.DECLARATION,
    dynamicresources.DECLARATION,
    gpufragmentation.DECLARATION,
    reservation.DECLARATION,
    coscheduling.DECLARATION,
    gangscheduling.DECLARATION,
    gangscheduling.PLACEMENT_GENERATOR,
    gangscheduling.PODS_COUNT,
    defaultprebind.DECLARATION,
    schedulinghint.DECLARATION,
    nodecircuitbreaker.DECLARATION,
    workloadquarantine.DECLARATION,
)

_DEFAULT: Mapping[str, PluginFactory] = {
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
    "DefaultPreemption": DefaultPreemption,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
    "NodeDeclaredFeatures": NodeDeclaredFeatures,
}

DECLARED: tuple[Declaration, ...] = (
    *BUILT_IN,
    *outoftree.declarations({*_DEFAULT, *(declared.name for declared in BUILT_IN)}),
)
"""Those with a declaration, of other distributions, too."""

IN_TREE: Mapping[str, PluginFactory] = {**_DEFAULT, **{declared.name: declared.factory for declared in DECLARED}}
"""Factories by name, for the profile runtime."""

CATALOG: PluginCatalog = DEFAULT_CATALOG.extended({declared.name: declared.entry for declared in DECLARED})
"""All plugins that a configuration may name, with their arguments."""

CONTROLLERS: Mapping[str, ControllerFactory] = {
    declared.name: declared.controller for declared in DECLARED if declared.controller is not None
}
"""Plugin -> what builds its controller."""

KINDS: Mapping[tuple[str, str], Kind[Any]] = {(kind.api_version, kind.name): kind for kind in registered()}
"""Every kind that the scheduler can read, those of plugins included, by apiVersion and kind."""
