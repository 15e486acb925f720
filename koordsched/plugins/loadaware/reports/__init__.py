"""How loads are shown: the page of a node as in upstream, a list of all nodes, and the command for it."""
