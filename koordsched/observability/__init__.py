"""Metrics, events, HTTP endpoints, logs, and monitoring of the event loop."""
