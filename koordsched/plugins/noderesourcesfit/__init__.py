"""NodeResourcesFit: does the pod fit, and how full would the node be (default-plugins spec 3.6)."""
