"""Which images are on which nodes.

Upstream scores with the size first seen for a name and forgets it with the last node that has the
image (`backend/cache`, default-plugins spec 3.8).
"""

from __future__ import annotations

from koordsched.api.core import ContainerImage


class Image:
    """One image name: `size` in bytes as first seen, and the rows that have it."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()


class Images:
    """All image names of the cluster."""

    __slots__ = ("_on_row", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[str, Image] = {}
        self._on_row: dict[int, tuple[ContainerImage, ...]] = {}

    def on_row(self, row: int) -> tuple[ContainerImage, ...]:
        """The images of the node on a row."""
        return self._on_row.get(row, ())

    def replace(self, row: int, images: tuple[ContainerImage, ...]) -> bool:
        """Stores what a node's status says of its images, perhaps once more; returns whether anything changed."""
        before = self._on_row.get(row, ())
        if before == images:
            return self._resize(images)
        # As if the node were removed and added: an image that no other node has may get another size.
        for name in {name for image in before for name in image.names}:
            known = self.by_name[name]
            known.rows.discard(row)
            if not known.rows:
                del self.by_name[name]
        for image in images:
            for name in image.names:
                self.by_name.setdefault(name, Image(image.size_bytes)).rows.add(row)
        if images:
            self._on_row[row] = images
        else:
            self._on_row.pop(row, None)
        return True

    def _resize(self, images: tuple[ContainerImage, ...]) -> bool:
        """The same again: what was first seen on nodes that are gone has the size that the only node left reports."""
        sizes: dict[str, int] = {}
        for image in images:
            for name in image.names:
                sizes.setdefault(name, image.size_bytes)
        changed = False
        for name, size in sizes.items():
            known = self.by_name[name]
            if len(known.rows) == 1 and known.size != size:
                known.size = size
                changed = True
        return changed
