"""How many pods that match a query are on each node and in each topology domain, updated pod by pod.

What plugins that look at other pods share: nothing here walks over all pods in a scheduling cycle.
"""
