"""The engine: how a pod gets a node, the same for every caller.

* `attempt`: one attempt to find a node for a pod: PreFilter and Filter, Score and the choice, PostFilter.
* `transaction`: the changes that follow, on the live table: place (assume and Reserve), evict, checkpoint, rollback,
  commit.
* `hypothesis`: what would be if pods were evicted and others placed, for plugins that decide about several pods.
* `jobplan`: the pods of a job, all of them in one transaction or none.

The scheduling cycle, extenders, `simulate`, `explain`, replay and the benchmarks use these, and nothing else places a
pod.
"""
