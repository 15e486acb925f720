"""ElasticQuota: hierarchical quotas that lend what they do not need (elasticquota spec).

Everything of the plugin is in this folder. `DECLARATION`, at the end, is what the rest of the program reads.

* Configuration and objects: `args` the plugin's arguments, `kinds` the custom resources, their labels and annotations.
* `arithmetic` computes, from requests and usage, what each quota may use; it does not know pods, nodes or the API.
* State: `definitions` reads an ElasticQuota object; `mapping` finds a pod's quota, `members` what it counts there;
  `books` keeps the trees in step with the cluster, `nodes` with what there is to distribute (one `QuotaBooks` per
  cluster state, whatever the number of profiles), by `settings`.
* Scheduling: `plugin` is the plugin; `admission` refuses pods, `preemption` makes room inside a quota at the cost of
  `victims`, `hints` wakes pods when there is `room` or there are `prospects` of victims, `messages` and `explanation`
  say why.
* `controller` writes objects while the scheduler leads: built-in quotas, status, validation events, quotas of profiles,
  evictions; and has the metrics.
* `webhook` has the rules of the admission webhooks as pure functions.
* `reports` has the pages of the HTTP server, the command `koordsched quota tree`, and the table of a refusal.

What `controller` and `reports` read:

    books = profile.plugins["ElasticQuota"].books   # a QuotaBooks; or QuotaBooks.shared(cluster, settings, wall)

    books.version                grows with every change of any number or quota: unchanged = nothing to write
    books.quotas()               every Quota of every tree, by name; built-ins (root of the default tree, default,
                                 system) included, abstract roots of other trees not
    books.quota(name)            one of them, or None
    books.objects(name)          the ElasticQuota objects of that name, the one in force first; others are duplicates
    books.validation_errors()    {(namespace, name): (text, ...)}: what is wrong with each ElasticQuota object, for
                                 events and conditions; empty when all is well
    books.unknown_names()        {name: number of pods}: labels that name no quota; such pods are in the default quota
    books.quota_of(pod)          the Quota a pod belongs to now; None only with gate DisableDefaultQuota
    books.members(quota)         the pods directly in it, unordered: Member(.pod, .counted, .assigned,
                                 .non_preemptible)
    books.groups(quota)          the same in groups of pods that count alike: Group(.members, .priority, .tally, ...)

    quota.name, .tree.id, .parent (a Quota or None), .children (by name), .is_parent, .is_root, .is_tree_root, .lent,
    quota.takes_part             False for root, default and system quota, for which no runtime is computed
    quota.max, .min, .weight     Amounts as declared
    quota.request, .child_request, .used, .non_preemptible_request, .non_preemptible_used,
    quota.self_request, .self_used, .self_non_preemptible_request, .self_non_preemptible_used,
    quota.allocated, .guaranteed (empty without gate ElasticQuotaGuaranteeUsage)
    quota.runtime                Amounts, worked out on access if need be; {} for root, default and system
    quota.limit                  the same, at less cost
    quota.scaled_min             Amounts, worked out on access

Amounts are `dict[str, int]` of resource name -> nano-units (1 CPU = 10**9, 1 byte = 10**9). `amounts.texts(amounts)`
gives `{"cpu": "53", "memory": "80Gi"}` as Kubernetes prints them, `amounts.fits(used, more, limit)` is the comparison
LE of the spec, `amounts.exceeded` names the dimensions that do not fit. Everything read from `books` is to be left
unchanged.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.elasticquota.args import ElasticQuotaArgs, validate, with_defaults
from koordsched.plugins.elasticquota.controller.loops import ElasticQuotaController
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.elasticquota.reports.pages import PAGES
from koordsched.plugins.elasticquota.reports.tables import VIEW, refusal_table

DECLARATION = Declaration(
    name=ElasticQuota.name,
    factory=ElasticQuota,
    entry=entry(
        "preFilter postFilter reserve",
        ArgsKind(ElasticQuotaArgs, with_defaults, validate, by_constructor=True),
    ),
    controller=ElasticQuotaController,
    pages=PAGES,
    views=(VIEW,),
    show_refusal=refusal_table,
)
