"""What the columns say of a node, comparable between schedulers."""

from koordsched.plugins.shared.devices.resources import NAMES, TYPES


def row_state(columns, row):
    """All that the columns say of a row, by names: equal however the same objects came."""
    found = {
        "equipment": columns.inventory(row).equipment,
        "numbered": columns.number.data.item(row) == columns.inventory(row).number,
        "holders": columns.holders.data.item(row),
        "functions": sorted(columns._taken.get(row, {}).items()),
        "any functions": bool(columns.functions.data.item(row)),
    }
    for kind in TYPES:
        width = len(NAMES[kind])
        for name, column in (("offered", columns.offered[kind]), ("used", columns.used[kind])):
            amounts = column.data[row].reshape(-1, width).tolist()
            found[f"{name} {kind}"] = {
                minor: dict(zip(NAMES[kind], each, strict=True))
                for minor, each in enumerate(amounts)
                if each != [column.fill] * width
            }
    return found
