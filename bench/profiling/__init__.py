"""Where the time of one pod goes, in a running scheduler (`python -m bench.profiling`)."""
