"""DefaultPreemption: makes room for a pod by evicting pods of lower priority (core spec 3.8)."""

from koordsched.plugins.defaultpreemption.plugin import DefaultPreemption

__all__ = ["DefaultPreemption"]
