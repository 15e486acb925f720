"""Reservation for one pod and one node, computed from scratch: reservation spec 3.1 to 3.9 and 5.1.

Plain dicts and loops, on top of the naive scheduler of `tests.reference`. CPU, memory, ephemeral storage, extended
resources, pods, host ports and whatever that scheduler decides by; no devices, no NUMA nodes.
"""
