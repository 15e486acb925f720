"""`koordsched demo`: an embedded cluster, the scheduler, example workloads, and whether all went where it should."""

from koordsched.cli.demo.command import demo

__all__ = ["demo"]
