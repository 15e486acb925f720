"""What pods say about nodes (selectors, tolerations), compiled into look-up tables over interned values."""
