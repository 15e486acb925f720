"""What runs for elastic quotas beside scheduling, while this scheduler leads (elasticquota spec 2.1, 3.15, 3.17).

`builtins` makes the root, system and default quota; `status` writes usage and runtimes to the objects;
`validationevents` reports invalid ones as events; `revocation` evicts pods of quotas that use more than they may;
`profiles` keeps the root quotas of trees at the size of their nodes; `metrics` is what Prometheus reads. `loops` runs
them all.
"""
