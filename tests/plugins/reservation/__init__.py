"""Tests of Reservation: room on a node, kept for its owners."""
