"""What scheduling by measured load does to a cluster whose pods use other amounts than they request."""
