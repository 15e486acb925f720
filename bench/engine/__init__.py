"""The engine alone: from a pod to its node on states of any size; no HTTP, no queue (`python -m bench.engine`)."""
