"""High availability with real processes: three schedulers, an embedded cluster, signals and sockets."""
