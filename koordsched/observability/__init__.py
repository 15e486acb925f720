"""What the outside sees: metrics, events, HTTP endpoints, logs, and a watch on the event loop itself."""
