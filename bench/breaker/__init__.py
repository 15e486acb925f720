"""What circuit breakers of nodes do to a cluster in which pods fail on some nodes."""
