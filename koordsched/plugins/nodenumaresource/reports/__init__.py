"""What of CPUs and NUMA nodes is shown: pages of the HTTP server, a command."""
