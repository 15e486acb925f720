"""Talking to the API server: connection, reflector (list and watch), write lanes and leader election."""
