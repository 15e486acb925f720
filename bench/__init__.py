"""Benchmarks: whole schedulers on an API server (`python -m bench`), the engine alone (`python -m bench.engine`)."""
