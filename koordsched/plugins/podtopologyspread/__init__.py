"""PodTopologySpread: pods of a kind spread over the domains of a topology key (default-plugins spec 3.9)."""
