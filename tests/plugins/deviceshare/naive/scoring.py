"""Scores of devices and nodes: deviceshare spec 3.8."""

DEFAULT = {
    "type": "LeastAllocated",
    "resources": [
        {"name": "koordinator.sh/gpu-memory-ratio", "weight": 1},
        {"name": "koordinator.sh/gpu-memory", "weight": 1},
        {"name": "koordinator.sh/rdma", "weight": 1},
        {"name": "koordinator.sh/fpga", "weight": 1},
    ],
}


class Scorer:
    """A strategy with its weights."""

    def __init__(self, strategy=None):
        strategy = strategy or DEFAULT
        self.most = strategy["type"] == "MostAllocated"
        self.weights = {entry["name"]: entry.get("weight", 1) for entry in strategy["resources"]}

    def rated(self, wanted, total, free):
        """The score of what would be in use of `total` where `free` is left."""
        points = weights = 0
        for name, weight in self.weights.items():
            size, left = total.get(name, 0), free.get(name, 0)
            if not size:
                continue
            filled = size - left + wanted.get(name, 0) if size >= left else size
            if self.most:
                points += weight * (min(filled, size) * 100 // size)
            elif filled <= size:
                points += weight * ((size - filled) * 100 // size)
            weights += weight
        return points // weights if weights else 0

    def rated_together(self, wanted, totals, frees):
        """The score of all devices of a type."""
        return self.rated(wanted, summed(totals), summed(frees))


def summed(devices):
    names = {name for amounts in devices.values() for name in amounts}
    return {name: sum(amounts.get(name, 0) for amounts in devices.values()) for name in names}


def normalised(scores):
    """{node: score} so that the best has 100."""
    best = max(scores.values(), default=0)
    return {node: 100 * score // best if best else score for node, score in scores.items()}
