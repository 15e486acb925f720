"""Default-plugins spec 3.8."""

from tests.reference.world import images_of

MEBI = 1 << 20


def normalized(name):
    """`:latest` if there is no tag; a colon before the last slash is a registry's port."""
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


class ImageLocality:
    def __init__(self, args):
        pass

    def score(self, pod, node, world, nodes):
        spec = pod["spec"]
        containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
        wanted = [c.get("image", "") for c in containers]
        wanted += [v["image"].get("reference", "") for v in spec.get("volumes") or [] if v.get("image") is not None]
        total = 0
        for name in map(normalized, wanted):
            if name not in dict(images_of(node)):
                continue
            holders = [other for other in world.nodes if name in dict(images_of(other))]
            total += int(float(world.image_sizes[name]) * (float(len(holders)) / float(len(world.nodes))))
        low, high = 23 * MEBI, 1000 * MEBI * len(containers)
        return 100 * (min(max(total, low), high) - low) // (high - low)
