"""NodeNUMAResource: binds pods to CPUs and aligns what they hold to NUMA nodes (nodenumaresource spec)."""
