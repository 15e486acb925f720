"""Typed nodes and pods."""

from koordsched.api import core
from koordsched.api.decoding import convert
from tests.plugins.objects import container, node, pod


def wire_node(name, **given):
    """A node; arguments as of `tests.plugins.objects.node`."""
    return convert(node(name, **given), core.Node)


def wire_pod(name, on=None, labels=None, namespace="default", **amounts):
    """A pod with one container that requests the amounts."""
    return convert(pod(name, container(**amounts), on=on, labels=labels, namespace=namespace), core.Pod)
