"""How devices of ResourceSlices are shown: pages of the HTTP server, a command."""
