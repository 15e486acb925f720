"""What keeps elastic quotas going besides scheduling (elasticquota spec 2.1, 3.15, 3.17, 3.18).

* `builtins` makes the root, system and default quota; `status` writes usage and runtimes to the objects, `complaints`
  tells their owners what is wrong; `revocation` evicts pods of quotas that use more than they may; `profiles` keeps
  the root quotas of trees at the size of their nodes. `loops` runs them all, side by side.
* `admission` is what the webhooks answer: pure functions of objects.
* `report` is all trees as a value, with `loans` between siblings, for the command and the page; `summary` a quota as
  upstream's plugin shows it; `metrics` what Prometheus reads.
"""
