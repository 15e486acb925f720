"""What users with bad intentions can send: bytes, objects, floods."""
