"""Verdicts: None passes; otherwise how final the rejection is, and its texts."""

from collections import namedtuple

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"
ERROR = "Error"
SKIP = "Skip"

Status = namedtuple("Status", "code reasons")


def unschedulable(*reasons):
    return Status(UNSCHEDULABLE, reasons)


def unresolvable(*reasons):
    return Status(UNRESOLVABLE, reasons)
