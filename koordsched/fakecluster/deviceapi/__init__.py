"""The rules of resource.k8s.io: devices, classes of them and claims to them, as an API server accepts them."""

from koordsched.fakecluster.deviceapi.strategies import device_strategies

__all__ = ["device_strategies"]
