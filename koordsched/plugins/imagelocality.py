"""ImageLocality: prefers nodes that have the pod's images already (default-plugins spec 3.8).

Source: upstream `plugins/imagelocality/image_locality.go`.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from koordsched.cluster.changelog import Facet
from koordsched.cluster.images import Image
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Handle
from koordsched.framework.interface import MAX_SCORE, Scores, ShapeScore
from koordsched.plugins.shared.matching.rows import count_of, single

_MIN_THRESHOLD = 23 << 20
_MAX_CONTAINER_THRESHOLD = 1000 << 20


class _Wanted:
    """One shape's images: name -> how many containers and volumes use it; and the range of the size sum."""

    __slots__ = ("images", "span")

    def __init__(self, shape: PodShape) -> None:
        spec = shape.spec
        containers = (*spec.init_containers, *spec.containers)
        names = [container.image for container in containers]
        names += [volume.image.reference for volume in spec.volumes if volume.image is not None]
        self.images: dict[str, int] = {}
        for name in map(normalized_name, names):
            self.images[name] = self.images.get(name, 0) + 1
        self.span = _MAX_CONTAINER_THRESHOLD * len(containers) - _MIN_THRESHOLD


class ImageLocality(ShapeScore):
    """Scores by the bytes that need not be pulled, each image discounted by its spread over the cluster."""

    name = "ImageLocality"
    facets = int(Facet.IMAGES)

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._table = handle.cluster.table

    def epoch(self, shape: PodShape) -> Hashable:
        """The sizes and spreads of the shape's images, and the number of nodes."""
        table = self._table
        known = table.images.by_name
        found = [
            (name, image.size, len(image.rows))
            for name in shape.compiled(self, _Wanted).images
            if (image := known.get(name)) is not None
        ]
        return (table.count, *found) if found else None

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0..100, from the discounted bytes present on the node."""
        wanted = shape.compiled(self, _Wanted)
        known = table.images.by_name
        present = [(known[name], times) for name, times in wanted.images.items() if name in known]
        if not present:
            return 0
        row = single(rows)
        if row >= 0:
            size = sum(times * _discounted(image, table.count) for image, times in present if row in image.rows)
            return MAX_SCORE * min(max(size - _MIN_THRESHOLD, 0), wanted.span) // wanted.span
        sizes = np.zeros(table.size, dtype=np.int64)
        for image, times in present:
            sizes[np.fromiter(image.rows, np.intp, len(image.rows))] += times * _discounted(image, table.count)
        if count_of(rows) != table.size or not isinstance(rows, slice):
            sizes = sizes[rows]
        return np.clip(sizes - _MIN_THRESHOLD, 0, wanted.span) * MAX_SCORE // wanted.span


def _discounted(image: Image, nodes: int) -> int:
    # The order of operations decides on the last bit, and with it on the truncation.
    return int(image.size * (len(image.rows) / nodes))


def normalized_name(name: str) -> str:
    """The name with `:latest` if it has neither tag nor digest; a colon before the last slash is a port."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
