"""Strategic merge patches of the built-in kinds."""

from __future__ import annotations

from typing import Any

from koordsched.api import strategicmerge
from koordsched.fakecluster.errors import bad_request
from koordsched.fakecluster.schemas import Schema, resolve


def strategic_merge(current: Any, patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """`patch` merged into `current`, an object of `schema`. 400 when a list element lacks its merge key."""
    try:
        return strategicmerge.strategic_merge(current, patch, schema, resolve)
    except strategicmerge.PatchError as error:
        raise bad_request(str(error)) from None
