"""Reservations as endpoints and commands show them."""
