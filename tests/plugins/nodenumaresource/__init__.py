"""Tests of NodeNUMAResource: CPUs and NUMA nodes for pods."""
