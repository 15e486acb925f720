"""Code shared by plugins that evict pods for others: budgets, dry runs, and the choice of a node."""
