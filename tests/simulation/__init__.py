"""Deterministic simulation: real schedulers against the embedded API server, on virtual time, under faults from a seed.

`simulation.run(seed)` is the whole of it; `python -m tests.simulation` runs many seeds or replays one.
"""
