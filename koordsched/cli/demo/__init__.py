"""`koordsched demo`: an embedded cluster, the scheduler, example workloads, and a check of the result."""

from koordsched.cli.demo.command import demo

__all__ = ["demo"]
