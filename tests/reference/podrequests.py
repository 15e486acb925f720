"""What a pod requests (default-plugins spec 3.1)."""

from fractions import Fraction

from tests.reference.quantity import in_units_of, parse

DEFAULTS = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 2**20)}


def requests(pod):
    """The effective request: {resource: units}, zeros left out. Honours pod-level resources and resizes."""
    return rounded(_effective(pod, {}, pod_level=True))


def exact_requests(pod):
    """The effective request before rounding: {resource: Fraction}; zeros stay where they are written."""
    return _effective(pod, {}, pod_level=True)


def spec_requests(pod):
    """The effective request by the spec alone, without what its status says of a resize: {resource: units}."""
    return rounded(_effective({**pod, "status": {}}, {}, pod_level=True))


def nonzero_requests(pod):
    """The same with defaults for containers without cpu or memory, as counted on the node for scores.

    A pod with requests of its own gets them only for what neither it nor a container nor its overhead mentions.
    """
    defaults = DEFAULTS
    if _of_pod(pod):
        defaults = {name: n for name, n in DEFAULTS.items() if name not in _effective(pod, {}, pod_level=True)}
    return rounded(_effective(pod, defaults, pod_level=True))


def scored_requests(pod):
    """What the incoming pod counts in the score of NodeResourcesFit: pod-level resources are ignored."""
    return rounded(_effective(pod, DEFAULTS, pod_level=False))


def rounded(amounts):
    """In whole units (milli for cpu), zeros left out."""
    return {name: n for name, amount in amounts.items() if (n := in_units_of(name, amount)) > 0}


def _effective(pod, defaults, pod_level):
    spec = pod["spec"]
    long_running = {}
    for container in spec.get("containers", []):
        _add(long_running, _container(pod, container, "containerStatuses", defaults))
    sidecars = {}
    proposals = []
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            request = _container(pod, container, "initContainerStatuses", defaults)
            _add(long_running, request)
            _add(sidecars, request)
            proposals.append(dict(sidecars))
        else:
            proposal = {**defaults, **_spec_requests(container)}
            _add(proposal, sidecars)
            proposals.append(proposal)
    total = {}
    for amounts in [long_running, *proposals]:
        for name, amount in amounts.items():
            total[name] = max(total.get(name, 0), amount)
    if pod_level:
        total |= _of_pod(pod)
    _add(total, {name: parse(quantity) for name, quantity in spec.get("overhead", {}).items()})
    return total


def _of_pod(pod):
    """What the pod requests as a whole, where it says so; a resize under way considered."""
    asked = _spec_requests(pod["spec"])
    names = [name for name in asked if name in ("cpu", "memory") or name.startswith("hugepages-")]
    now = _resized(pod, asked, pod.get("status", {}))
    return {name: now.get(name, 0) for name in names}


def _spec_requests(holder):
    requested = (holder.get("resources") or {}).get("requests") or {}
    return {name: parse(quantity) for name, quantity in requested.items()}


def _container(pod, container, statuses, defaults):
    """A container's or sidecar's request, an in-place resize under way considered."""
    own = next((s for s in pod.get("status", {}).get(statuses, []) if s["name"] == container["name"]), {})
    return {**defaults, **_resized(pod, _spec_requests(container), own)}


def _resized(pod, request, status):
    """The largest of what is asked (unless that is infeasible), in force and allocated."""
    if status.get("resources") is None:
        return request
    conditions = pod.get("status", {}).get("conditions", [])
    resize = next((c for c in conditions if c["type"] == "PodResizePending"), {})
    if resize.get("reason") == "Infeasible":
        request = {}
    for amounts in (status["resources"].get("requests") or {}, status.get("allocatedResources") or {}):
        for name, quantity in amounts.items():
            request[name] = max(request.get(name, 0), parse(quantity))
    return request


def _add(total, more):
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
