"""Network topology: where in the network a node is, and jobs that are placed inside one part of it (coscheduling spec
2.4, 3.5, 3.6, 3.11).

What the plugin calls:

* `service.NetworkTopology`: one per cluster, `topology = network_topology(handle.cluster, handle.features)`, in the
  constructor of the plugin. `topology.tree()` is the tree as of now, None if there is none ("no cluster network
  topology": `service.NO_TOPOLOGY`); `topology.problem` says why. `topology.existing(selector)`: int64[rows], the pods
  with this selector; to be called before anything is placed (D12).
* `gathering.gathering_of(text)`: the annotation `network-topology-spec` as a `Gathering`. Raises `MalformedGathering`:
  then the gang has no spec, and the message is for an Event.
* `complaints.GatheringComplaints(topology, handle.events).look(gang, text, pod)`: Events about such annotations, and
  about layers that there are not.
* `members.Member`, `members.member_of(pod)`: what matters of a pod; `members.in_order(members)`: the order in which
  offers are counted.
* `offers.Offers(handle, without=frozenset({"Coscheduling"})).count(pods, rows)`: how many of the pods, in this order,
  fit each row one after the other: `offers` int64[table rows] and `codes` int32[table rows], the reason why not more
  (PASS where all fit). `pods` are the pending pods of the job in the order of `in_order`; `rows` the candidates. The
  nominations of these pods are ignored. Keep the answer as long as the codes are used: it holds their reasons. Nothing
  is changed; not to be called inside a what-if or an overlay.
* `solver.solve(tree, gathering, desired, offers, existing=None, scores=None)`: a `Solution`, or None. `scores`: the
  higher, the better (job preemption gives the negated costs, D13). `solution.rows`: one row per member, in order.
* `members.assign(members, solution.rows, by_index=False)`: (position of the member, row) for each; by name (D6).
* `refusal.message(tree, gathering, desired, offers, codes, rows, reasons)`: why there is no solution.
* `selectorscore.SelectorScore(topology)`: PreScore, Score and normalisation of pods with a selector; the plugin's own
  `abstains`, `pre_score`, `score` and `normalize` pass on to it.
* `controller.TopologyController(topology, handle)`: `run()` beside the plugin's controller while the replica leads;
  writes the status of the object, and Events about what is wrong with it.
* `waking.registrations(name, gathers, alike)`: the hints for `events_to_register`. What else a gang waits for are the
  plugins of the reasons in `codes`.
* `explanation.explained(handle, topology, offers, gathering, pods)`: the tree with what it offers these pods, as a
  struct for JSON; `picture.lines(explained)` are the same as text. `picture.picture(tree)` is the tree alone.
"""
