"""Allocation of GPUs on Alibaba's GPU-sharing traces, through the engine (`python -m bench.openb DIR`)."""
