"""Admission of new objects, as the plugins that every real API server runs by default do it."""
