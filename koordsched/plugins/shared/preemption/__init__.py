"""What plugins that evict pods for others have in common: budgets, dry runs, and the choice of a node."""
