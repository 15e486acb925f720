"""Pending pods: what is tried next, what waits, and what wakes it."""
