"""Controllers: loops that write objects, while this scheduler leads and only then.

A controller belongs to a plugin and is started when a profile enables it. It reads the cluster state and the plugin's
own books, and writes through protocols declared here; it knows nothing of queues, cycles or the API client.
"""
