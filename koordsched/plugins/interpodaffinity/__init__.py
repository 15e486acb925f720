"""InterPodAffinity: pods that attract or repel each other (default-plugins spec 3.10)."""
