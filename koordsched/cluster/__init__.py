"""The scheduler's cache: the node table, the pods, assume and forget, the change log, what-ifs."""
