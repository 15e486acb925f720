"""Why nodes are refused (nodenumaresource spec 3.2, 3.3): texts that users read, upstream's to the letter."""

POLICY_MISMATCH = "node(s) NUMA Topology policy not match"
NOT_INTEGER = "the requested CPUs must be integer"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"
INVALID_RATIO = "node(s) invalid CPU amplification ratio"
INSUFFICIENT_AMPLIFIED = "Insufficient amplified cpu"
CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_WHOLE_CORES = "node(s) requested cpus not multiple cpus per core"
NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
NO_ZONES = "node(s) missing NUMA resources"
NO_NUMA_RESOURCES = "node(s) Insufficient NUMA Node resources"

UNSCHEDULABLE = (NOT_ENOUGH_CPUS, INSUFFICIENT_AMPLIFIED, NO_NUMA_RESOURCES)
"""Fewer pods on the node may help."""
UNRESOLVABLE = (POLICY_MISMATCH, NOT_INTEGER, INVALID_TOPOLOGY, INVALID_RATIO, CONFLICT, NOT_WHOLE_CORES, NO_ZONES)
