"""Benchmarks: whole schedulers against an API server (`python -m bench`), and the engine alone (`python -m bench.engine`)."""
