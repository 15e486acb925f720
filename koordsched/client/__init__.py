"""Talking to the API server: connection, reflector (list and watch), informers, write lanes and leader election."""
