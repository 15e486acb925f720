"""How many pods of some description are on each node and in each topology domain, kept up pod by pod.

What plugins that look at other pods share: nothing here walks over all pods in a scheduling cycle.
"""
