"""Deliberate defects, by name: proof that the simulation finds what it claims to look for.

Each is a small change of the code under test, of a kind that a hurried hand could make.
"""

from tests.simulation.mutations import (
    breakers,
    claims,
    clients,
    devices,
    features,
    gangs,
    numa,
    reservations,
    scheduling,
)
from tests.simulation.mutations.registry import MUTATIONS, WORLDS, mutated

__all__ = [
    "MUTATIONS",
    "WORLDS",
    "breakers",
    "claims",
    "clients",
    "devices",
    "features",
    "gangs",
    "mutated",
    "numa",
    "reservations",
    "scheduling",
]
