"""What of devices is shown: pages of the HTTP server, a command."""
