"""Loadaware spec B."""

from math import floor

from tests.reference.podrequests import requests
from tests.reference.world import allocatable


class ScarceResourceAvoidance:
    def __init__(self, args):
        self.scarce = args.get("resources") or []

    def score(self, pod, node, world, nodes):
        offered = [name for name in node["status"]["allocatable"] if name != "pods" and allocatable(node, name) > 0]
        unused = [name for name in offered if name not in requests(pod)]
        hit = [name for name in unused if name in self.scarce]
        if not hit:
            return 100
        return floor(100 * (len(unused) - len(hit)) / len(unused))
