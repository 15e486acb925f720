"""Pods that a quota refused and that upstream tries again to no effect but another text (docs/deviations.md).

Upstream registers every change of an ElasticQuota without a hint, and its own status loop writes one whenever a
request, `used` or `runtime` changed: each write tries all refused pods again. Ours are tried when they may fit or find
victims, and so their texts have the numbers of their last attempt.
"""

USED = "another pod was bound after the attempt: upstream's status loop wrote the quota's new `used`"
RUNTIME = "another pod came after the attempt: upstream's status loop wrote the runtime that changed with its request"
OWN_REQUEST = (
    "it waits for its victims, which do not go in the record: upstream's status loop wrote the pod's own request"
)
MOVED = (
    "it came to another quota, which has no room for it either, and was refused by the nodes last: upstream's status "
    "loop wrote its request to that quota"
)

RETRIES = {
    "quota-deny-leaf-message": {"works/a-2": USED, "works/a-3": USED},
    "quota-namespaces-edit": {"lab-a/w-2": MOVED},
    "quota-nonpreemptible-min": {"works/n-2": USED},
    "quota-parent-check-3-on": {"works/x-1": USED},
    "quota-preempt-default-quota-allowed": {"works/top": OWN_REQUEST},
    "quota-preempt-helm-profile": {"works/top": OWN_REQUEST},
    "quota-preempt-node-choice": {"works/top": OWN_REQUEST},
    "quota-preempt-one-victim": {"works/top": OWN_REQUEST},
    "quota-preempt-pdb-overridden": {"works/top": OWN_REQUEST},
    "quota-random-15": {"works/probe-1": RUNTIME},
    "quota-run-absent-key": {"works/v-1": RUNTIME},
}
"""Record -> pods that its replay tries once more at the end, each with what made upstream try it. All others it leaves
alone, and of these it demands that the text differs without.
"""
