"""What upstream does wrong in records about devices, and what is right instead."""

CORRECTIONS = {}
"""Name of a record -> what replaces parts of `expected`."""


def corrected(record):
    """The record with what is right."""
    return {**record, "expected": {**record["expected"], **CORRECTIONS.get(record["name"], {})}}
