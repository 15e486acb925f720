"""How long a scheduler takes to start in a large cluster, and what memory it takes there."""
