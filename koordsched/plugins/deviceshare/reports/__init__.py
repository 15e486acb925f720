"""How devices are shown: pages of the HTTP server, a command."""
