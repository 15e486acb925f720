"""The arithmetic of quota trees, which does not know pods, nodes or the API.

`amounts` exact quantities; `quota` a quota and its place; `tally` pods that count alike; `accounting` requests and
usage up a tree; `tree` and `runtime` what each quota may use now; `trees` all trees of a cluster and which quota is
in which; `timing` the steps of all this that are measured. A pure, incremental computation: at any moment it is equal
to one from scratch.
"""
