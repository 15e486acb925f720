"""InterPodAffinity: pods that want, or cannot stand, each other's company (default-plugins spec 3.10)."""
