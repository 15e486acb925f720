"""Extension points, statuses, the registry, and the profile runtime that evaluates plugins over rows."""
