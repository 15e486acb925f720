"""How CPUs and NUMA nodes are shown: pages of the HTTP server, a command."""
