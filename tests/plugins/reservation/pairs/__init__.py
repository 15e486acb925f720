"""Reservations together with another capability: the real scheduler over the embedded API server."""
