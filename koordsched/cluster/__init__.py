"""What the scheduler believes: the node table, the pods, assume and forget, the change log, what-ifs."""
