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
        """Stores a node's images; returns whether they changed."""
        before = self._on_row.get(row, ())
        if before == images:
            return False
        # As if the node went and came back: an image that no other node has may get another size.
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
