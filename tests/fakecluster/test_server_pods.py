"""Pods as they are stored, refused, changed and bound."""

import pytest

from tests.fakecluster.apiclient import NOW, PODS, Api, pod


@pytest.fixture
def api():
    return Api()


def stored(api, body):
    status, made = api.post(PODS, body)
    assert status == 201, made
    return made


NOT_READY = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def test_the_whole_stored_form_of_a_minimal_pod(api):
    made = stored(api, pod())
    assert made["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "app:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": NOT_READY,
    }
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


def test_the_stored_form_is_stable(api):
    body = pod(
        hostNetwork=True,
        containers=[
            {
                "name": "c",
                "image": "app",
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "resources": {"limits": {"cpu": 1.5, "memory": "1024Mi", "ex.com/gpu": "1"}},
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            }
        ],
        volumes=[{"name": "scratch"}, {"name": "conf", "configMap": {"name": "x"}}],
    )
    made = stored(api, body)
    container = made["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert container["imagePullPolicy"] == "Always"
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "failureThreshold": 3,
        "periodSeconds": 10,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    }
    amounts = {"cpu": "1500m", "memory": "1Gi", "ex.com/gpu": "1"}
    assert container["resources"] == {"limits": amounts, "requests": amounts}
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert made["spec"]["volumes"] == [
        {"name": "scratch", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": "x", "defaultMode": 420}},
    ]
    assert made["status"]["qosClass"] == "Guaranteed"
    again = {"metadata": {"name": "q"}, "spec": made["spec"]}
    assert stored(api, again)["spec"] == made["spec"]


QOS = [
    ([{}], "BestEffort"),
    ([{"requests": {"cpu": "1"}}], "Burstable"),
    ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
    ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
    ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}], "Burstable"),
    ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
    ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0", "memory": "1Gi"}}], "Burstable"),
    ([{"requests": {"ex.com/x": "1"}, "limits": {"ex.com/x": "1"}}], "BestEffort"),
]


@pytest.mark.parametrize("resources, expected", QOS)
def test_quality_of_service(api, resources, expected):
    containers = [{"name": f"c{i}", "image": "a", "resources": r} for i, r in enumerate(resources)]
    assert stored(api, pod(containers=containers))["status"]["qosClass"] == expected


TOLERATIONS = [
    ([], NOT_READY),
    ([{"operator": "Exists"}], [{"operator": "Exists"}]),
    ([{"key": "a", "operator": "Exists"}], [{"key": "a", "operator": "Exists"}, *NOT_READY]),
    (
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, NOT_READY[1]],
    ),
    (
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}],
        [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}, *NOT_READY],
    ),
]


@pytest.mark.parametrize("given, expected", TOLERATIONS)
def test_default_tolerations(api, given, expected):
    assert stored(api, pod(tolerations=given))["spec"]["tolerations"] == expected


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_priority_comes_from_the_class(api):
    api.post(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    spec = stored(api, pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    assert stored(api, pod("q", priorityClassName="system-node-critical"))["spec"]["priority"] == 2000001000
    api.post(CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    spec = stored(api, pod("r"))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (5, "usual")
    api.delete(f"{CLASSES}/usual")
    assert "priorityClassName" not in stored(api, pod("s"))["spec"]


PRIORITY_REFUSALS = [
    ({"priorityClassName": "none"}, 'pods "p" is forbidden: no PriorityClass with name none was found'),
    (
        {"priority": 3},
        'pods "p" is forbidden: the integer value of priority (3) must not be provided in pod spec; '
        "priority admission controller computed 0 from the given PriorityClass name",
    ),
]


@pytest.mark.parametrize("spec, message", PRIORITY_REFUSALS)
def test_priorities_that_are_refused(api, spec, message):
    status, body = api.post(PODS, pod(**spec))
    assert (status, body["reason"], body["message"]) == (403, "Forbidden", message)


def test_priority_classes_have_bounds(api):
    assert api.post(CLASSES, {"metadata": {"name": "x"}, "value": 1_000_000_001})[0] == 422
    assert api.post(CLASSES, {"metadata": {"name": "system-mine"}, "value": 1})[0] == 422
    api.post(CLASSES, {"metadata": {"name": "x"}, "value": 1})
    assert api.merge(f"{CLASSES}/x", {"value": 2})[0] == 422


def test_limit_ranges_fill_and_bound(api):
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "500m"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"},
            "max": {"cpu": "2"},
        }
    ]
    api.post("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    made = stored(api, pod())
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].startswith("LimitRanger plugin set: ")
    big = [{"name": "c", "image": "a", "resources": {"limits": {"cpu": "3"}}}]
    status, body = api.post(PODS, pod("big", containers=big))
    assert (status, body["reason"]) == (403, "Forbidden")
    assert "maximum cpu usage per Container is 2, but limit is 3" in body["message"]


def test_label_keys_are_merged_into_selectors(api):
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["rev", "absent"],
        "mismatchLabelKeys": ["team"],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["rev"],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    body = pod(
        labels={"app": "a", "rev": "1", "team": "t"},
        affinity={"podAffinity": {required: [term]}},
        topologySpreadConstraints=[spread],
    )
    spec = stored(api, body)["spec"]
    in_rev = {"key": "rev", "operator": "In", "values": ["1"]}
    not_team = {"key": "team", "operator": "NotIn", "values": ["t"]}
    assert spec["affinity"]["podAffinity"][required][0]["labelSelector"]["matchExpressions"] == [in_rev, not_team]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [in_rev]


def containers(**fields):
    return {"containers": [{"name": "c", "image": "a", **fields}]}


INVALID = [
    ({"containers": []}, [("spec.containers", "Required value")]),
    ({"containers": [{"name": "c"}]}, [("spec.containers[0].image", "Required value")]),
    (
        {"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "a"}]},
        [("spec.containers[1].name", 'Duplicate value: "c"')],
    ),
    (
        containers(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        [("spec.containers[0].resources.requests", 'Invalid value: "2": must be less than or equal to cpu limit of 1')],
    ),
    (
        containers(resources={"requests": {"memory": "-1Gi"}}),
        [
            (
                "spec.containers[0].resources.requests[memory]",
                'Invalid value: "-1Gi": must be greater than or equal to 0',
            )
        ],
    ),
    (
        containers(resources={"requests": {"ex.com/gpu": "1"}}),
        [
            (
                "spec.containers[0].resources.limits",
                "Required value: Limit must be set for non overcommitable resources",
            )
        ],
    ),
    (
        containers(ports=[{"containerPort": 70000}]),
        [("spec.containers[0].ports[0].containerPort", "Invalid value: 70000: must be between 1 and 65535, inclusive")],
    ),
    (
        {"restartPolicy": "Sometimes"},
        [("spec.restartPolicy", 'Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"')],
    ),
    (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]},
        [("spec.tolerations[0].operator", "Invalid value: \"v\": value must be empty when `operator` is 'Exists'")],
    ),
    (
        {"nodeName": "n", "schedulingGates": [{"name": "ex.com/g"}]},
        [("spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")],
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
        [("spec.topologySpreadConstraints[0].maxSkew", "Invalid value: 0: must be greater than zero")],
    ),
]


@pytest.mark.parametrize("spec, causes", INVALID)
def test_invalid_pods(api, spec, causes):
    status, body = api.post(PODS, pod(**spec))
    assert (status, body["reason"], body["code"]) == (422, "Invalid", 422)
    assert [(c["field"], c["message"]) for c in body["details"]["causes"]] == causes
    one = f"{causes[0][0]}: {causes[0][1]}"
    assert body["message"] == f'Pod "p" is invalid: {one}'


def test_an_absurd_quantity_is_told_by_its_field(api):
    status, body = api.post(PODS, pod(**containers(resources={"requests": {"cpu": "lots"}})))
    assert status == 422
    cause = body["details"]["causes"][0]
    assert cause["field"] == "spec.containers[0].resources.requests[cpu]"
    assert cause["message"].startswith('Invalid value: "lots": quantities must match the regular expression')


@pytest.mark.parametrize(
    "name, labels, field",
    [("Bad_Name", None, "metadata.name"), ("p", {"a b": "c"}, "metadata.labels"), ("p", {"a": "-"}, "metadata.labels")],
)
def test_invalid_metadata(api, name, labels, field):
    status, body = api.post(PODS, pod(name, labels))
    assert (status, body["details"]["causes"][0]["field"]) == (422, field)


def test_gates_can_only_be_taken_away(api):
    gates = [{"name": "ex.com/a"}, {"name": "ex.com/b"}]
    made = stored(api, pod(schedulingGates=gates))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert api.merge(f"{PODS}/p", {"spec": {"schedulingGates": [*gates, {"name": "ex.com/c"}]}})[0] == 422
    tightened = {"spec": {"schedulingGates": gates[:1], "nodeSelector": {"disk": "ssd"}}}
    status, changed = api.merge(f"{PODS}/p", tightened)
    assert (status, changed["spec"]["nodeSelector"]) == (200, {"disk": "ssd"})
    assert api.merge(f"{PODS}/p", {"spec": {"nodeSelector": None}})[0] == 422
    _, free = api.merge(f"{PODS}/p", {"spec": {"schedulingGates": None}})
    assert "conditions" not in free["status"]
    assert api.merge(f"{PODS}/p", {"spec": {"nodeSelector": {"disk": "hdd"}}})[0] == 422


CHANGES = [
    ({"spec": {"nodeName": "n2"}}, 422),
    ({"spec": {"schedulerName": "other"}}, 422),
    ({"spec": {"priority": 7}}, 422),
    ({"spec": {"activeDeadlineSeconds": 100}}, 200),
    ({"metadata": {"labels": {"a": "b"}}}, 200),
    ({"spec": {"tolerations": [*NOT_READY, {"key": "x", "operator": "Exists"}]}}, 200),
    ({"spec": {"tolerations": []}}, 422),
]


@pytest.mark.parametrize("patch, code", CHANGES)
def test_what_may_be_changed(api, patch, code):
    stored(api, pod())
    assert api.merge(f"{PODS}/p", patch)[0] == code


def test_binding(api):
    made = stored(api, pod())
    nominated = {"status": {"nominatedNodeName": "n0", "conditions": [{"type": "PodScheduled", "status": "False"}]}}
    api.merge(f"{PODS}/p/status", nominated)
    meta = {"name": "p", "uid": made["metadata"]["uid"], "annotations": {"ex.com/a": "b"}}
    status, body = api.post(f"{PODS}/p/binding", {"metadata": meta, "target": {"kind": "Node", "name": "n1"}})
    assert (status, body["status"]) == (201, "Success")
    bound = api.get(f"{PODS}/p")[1]
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"ex.com/a": "b"}
    assert bound["metadata"]["generation"] == 1
    assert "nominatedNodeName" not in bound["status"]
    assert bound["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "observedGeneration": 1,
            "lastProbeTime": None,
            "lastTransitionTime": NOW,
        }
    ]


def binding(uid="", node="n1", kind="Node"):
    return {"metadata": {"name": "p", "uid": uid}, "target": {"kind": kind, "name": node}}


BIND_REFUSALS = [
    ("assigned", {"nodeName": "n0"}, binding(), 409, 'pod p is already assigned to node "n0"'),
    ("other uid", {}, binding("u"), 409, "Precondition failed: UID in precondition: u, UID in object meta: "),
    (
        "gated",
        {"schedulingGates": [{"name": "ex.com/a"}]},
        binding(),
        409,
        "pod p has non-empty .spec.schedulingGates",
    ),
    ("no node", {}, binding(node=""), 422, "target.name: Required value"),
    ("no Node", {}, binding(kind="Pod"), 422, 'target.kind: Unsupported value: "Pod"'),
]


@pytest.mark.parametrize("spec, body, code, text", [b[1:] for b in BIND_REFUSALS], ids=[b[0] for b in BIND_REFUSALS])
def test_bindings_that_are_refused(api, spec, body, code, text):
    stored(api, pod(**spec))
    before = api.registry.store.rv
    status, answer = api.post(f"{PODS}/p/binding", body)
    assert (status, text in answer["message"]) == (code, True), answer
    if code == 409:
        assert answer["message"].startswith('Operation cannot be fulfilled on pods/binding "p": ')
        assert answer["details"] == {"name": "p", "kind": "pods/binding"}
    assert api.registry.store.rv == before


def test_terminating_and_absent_pods_are_not_bound(api):
    body = pod()
    body["metadata"]["finalizers"] = ["ex.com/hold"]
    stored(api, body)
    api.delete(f"{PODS}/p")
    answer = api.post(f"{PODS}/p/binding", binding())
    assert (answer[0], "pod p is being deleted, cannot be assigned to a host" in answer[1]["message"]) == (409, True)
    status, gone = api.post(f"{PODS}/q/binding", {"metadata": {"name": "q"}, "target": {"name": "n"}})
    assert (status, gone["message"]) == (404, 'pods "q" not found')


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def running(api, name, ready=True):
    stored(api, pod(name, {"app": "a"}, nodeName="n"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    api.merge(f"{PODS}/{name}/status", {"status": status})


def budget(api, name="b", allowed=0, healthy=1, **spec):
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1, **spec}}
    assert api.post(BUDGETS, body)[0] == 201
    status = {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1,
        "expectedPods": 2,
    }  # fmt: skip
    assert api.merge(f"{BUDGETS}/{name}/status", {"status": status})[0] == 200


def evict(api, name):
    return api.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}})


def test_evictions_spend_the_budget(api):
    for name in ("p1", "p2"):
        running(api, name)
    budget(api, allowed=1, healthy=2)
    assert evict(api, "p1")[0] == 201
    left = api.get(f"{BUDGETS}/b")[1]["status"]
    assert (left["disruptionsAllowed"], left["disruptedPods"]) == (0, {"p1": NOW})
    status, refused = evict(api, "p2")
    assert (status, refused["reason"]) == (429, "TooManyRequests")
    assert refused["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    text = "The disruption budget b needs 1 healthy pods and has 2 currently"
    assert refused["details"]["causes"] == [{"reason": "DisruptionBudget", "message": text}]
    assert api.get(f"{PODS}/p1")[0] == 404


EVICTIONS = [
    ("no budget", None, True, 201),
    ("budget not observed yet", {"observed": False}, True, 429),
    ("unready pods of a healthy application", {"healthy": 1}, False, 201),
    ("unready pods of an unhealthy one", {"healthy": 0}, False, 429),
    ("always allowed when unready", {"healthy": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, False, 201),
]


@pytest.mark.parametrize("setting, ready, code", [e[1:] for e in EVICTIONS], ids=[e[0] for e in EVICTIONS])
def test_evictions(api, setting, ready, code):
    running(api, "p", ready)
    if setting is not None:
        observed = setting.pop("observed", True)
        budget(api, **setting)
        if not observed:
            api.merge(f"{BUDGETS}/b", {"spec": {"minAvailable": 2}})
    assert evict(api, "p")[0] == code


def test_two_budgets_are_one_too_many(api):
    running(api, "p")
    budget(api, "b1", allowed=1)
    budget(api, "b2", allowed=1)
    assert evict(api, "p")[0] == 500
