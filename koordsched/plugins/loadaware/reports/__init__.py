"""What is shown of loads: the page of a node as upstream has it, a list of all nodes, and the command for it."""
