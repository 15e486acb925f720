"""Validation of pods and pod templates: the rules that schedulers and their users run into.

Source: pkg/apis/core/validation/validation.go; texts as there.
"""

from __future__ import annotations

from typing import Any

from koordsched.api.quantity import QuantityError
from koordsched.fakecluster.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from koordsched.fakecluster.names import (
    label_error,
    label_errors,
    label_value_error,
    qualified_name_error,
    subdomain_error,
)
from koordsched.fakecluster.podclaimvalidation import pod_claim_errors
from koordsched.fakecluster.quantities import canonicalize, exceeds, whole

Object = dict[str, Any]

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PULL = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS = ("Equal", "Exists", "Lt", "Gt")


def pod_spec_errors(spec: Object, field: str) -> list[FieldError]:
    """What is wrong with a pod spec; brings its quantities into canonical form on the way."""
    wrong: list[FieldError] = []
    containers = spec.get("containers")
    if not containers:
        wrong.append(required(f"{field}.containers"))
    names: set[str] = set()
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            _container(container, f"{field}.{kind}[{i}]", names, kind, wrong)
    if (resources := spec.get("resources")) is not None:
        _resources(resources, f"{field}.resources", wrong)
    if spec.get("overhead"):
        wrong += canonicalize(spec["overhead"], f"{field}.overhead")
    if spec.get("restartPolicy") not in _RESTART:
        wrong.append(not_supported(f"{field}.restartPolicy", spec.get("restartPolicy"), _RESTART))
    if spec.get("dnsPolicy") not in _DNS:
        wrong.append(not_supported(f"{field}.dnsPolicy", spec.get("dnsPolicy"), _DNS))
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        text = "must be between 1 and 2147483647, inclusive"
        wrong.append(invalid_value(f"{field}.activeDeadlineSeconds", deadline, text))
    if spec.get("nodeName") and (text_ := subdomain_error(spec["nodeName"])) is not None:
        wrong.append(invalid_value(f"{field}.nodeName", spec["nodeName"], text_))
    if spec.get("nodeSelector"):
        wrong += label_errors(spec["nodeSelector"], f"{field}.nodeSelector")
    if spec.get("tolerations"):
        _tolerations(spec["tolerations"], f"{field}.tolerations", wrong)
    if spec.get("schedulingGates"):
        _gates(spec["schedulingGates"], f"{field}.schedulingGates", wrong)
    if spec.get("topologySpreadConstraints"):
        _spread(spec["topologySpreadConstraints"], f"{field}.topologySpreadConstraints", wrong)
    if spec.get("affinity"):
        _affinity(spec["affinity"], f"{field}.affinity", wrong)
    wrong += pod_claim_errors(spec, field)
    if spec.get("volumes"):
        _volumes(spec["volumes"], f"{field}.volumes", wrong)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        wrong.append(forbidden_field(f"{field}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return wrong


def _container(container: Object, field: str, names: set[str], kind: str, wrong: list[FieldError]) -> None:
    name = container.get("name")
    if not name:
        wrong.append(required(f"{field}.name"))
    elif (text := label_error(name)) is not None:
        wrong.append(invalid_value(f"{field}.name", name, text))
    elif name in names:
        wrong.append(duplicate(f"{field}.name", name))
    else:
        names.add(name)
    if not container.get("image"):
        wrong.append(required(f"{field}.image"))
    if container.get("imagePullPolicy") not in _PULL:
        wrong.append(not_supported(f"{field}.imagePullPolicy", container.get("imagePullPolicy"), _PULL))
    if container.get("resources"):
        _resources(container["resources"], f"{field}.resources", wrong)
    if container.get("ports"):
        _ports(container["ports"], f"{field}.ports", wrong)
    for i, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            wrong.append(required(f"{field}.env[{i}].name"))
    policy = container.get("restartPolicy")
    if policy and kind == "initContainers" and policy not in _RESTART:
        wrong.append(not_supported(f"{field}.restartPolicy", policy, _RESTART))


def _ports(ports: list[Object], field: str, wrong: list[FieldError]) -> None:
    for i, port in enumerate(ports):
        for key in ("containerPort", "hostPort"):
            number = port.get(key)
            if number is None and key == "hostPort":
                continue
            if not number and key == "containerPort":
                wrong.append(required(f"{field}[{i}].{key}"))
            elif number and not 1 <= number <= 65535:
                wrong.append(invalid_value(f"{field}[{i}].{key}", number, "must be between 1 and 65535, inclusive"))
        if port.get("protocol") not in _PROTOCOLS:
            wrong.append(not_supported(f"{field}[{i}].protocol", port.get("protocol"), _PROTOCOLS))


def _resources(resources: Object, field: str, wrong: list[FieldError]) -> None:
    requests, limits = resources.get("requests"), resources.get("limits")
    before = len(wrong)
    for kind, quantities in (("limits", limits), ("requests", requests)):
        if quantities:
            wrong += canonicalize(quantities, f"{field}.{kind}")
            for name, quantity in quantities.items():
                _resource_name(name, f"{field}.{kind}[{name}]", wrong)
                if quantity.__class__ is str and quantity.startswith("-"):
                    text = "must be greater than or equal to 0"
                    wrong.append(invalid_value(f"{field}.{kind}[{name}]", quantity, text))
    if len(wrong) > before or not (requests or limits):
        return
    limits = limits or {}
    for name, quantity in (requests or {}).items():
        limit = limits.get(name)
        try:
            if limit is not None and limit != quantity:
                if exceeds(quantity, limit):
                    text = f"must be less than or equal to {name} limit of {limit}"
                    wrong.append(invalid_value(f"{field}.requests", quantity, text))
                elif not overcommits(name):
                    text = f"must be equal to {name} limit of {limit}"
                    wrong.append(invalid_value(f"{field}.requests", quantity, text))
            if not overcommits(name) and limit is None:
                text = "Limit must be set for non overcommitable resources"
                wrong.append(FieldError(f"{field}.limits", "FieldValueRequired", f"Required value: {text}"))
            if "/" in name and not name.startswith("kubernetes.io/") and not whole(quantity):
                wrong.append(invalid_value(f"{field}.requests[{name}]", quantity, "must be an integer"))
        except QuantityError:
            continue


def overcommits(name: str) -> bool:
    """Whether a resource's request may be below its limit: native ones but huge pages."""
    return name in _STANDARD or ("/" not in name and not name.startswith("hugepages-"))


def _resource_name(name: str, field: str, wrong: list[FieldError]) -> None:
    if name in _STANDARD or name.startswith("hugepages-"):
        return
    if (text := qualified_name_error(name)) is not None:
        wrong.append(invalid_value(field, name, text))
    elif "/" not in name:
        wrong.append(invalid_value(field, name, "must be a standard resource for containers"))
        wrong.append(invalid_value(field, name, "must be a standard resource type or fully qualified"))


def _tolerations(tolerations: list[Object], field: str, wrong: list[FieldError]) -> None:
    for i, toleration in enumerate(tolerations):
        where = f"{field}[{i}]"
        key, operator, effect = toleration.get("key"), toleration.get("operator"), toleration.get("effect")
        if key and (text := qualified_name_error(key)) is not None:
            wrong.append(invalid_value(f"{where}.key", key, text))
        if not key and operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            wrong.append(invalid_value(f"{where}.operator", operator or "", text))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            wrong.append(invalid_value(f"{where}.effect", effect or "", text))
        if operator not in (None, "", *_TOLERATION_OPERATORS):
            wrong.append(not_supported(f"{where}.operator", operator, _TOLERATION_OPERATORS))
        elif operator == "Exists":
            if toleration.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                wrong.append(invalid_value(f"{where}.operator", toleration["value"], text))
        elif toleration.get("value") and (bad := label_value_error(str(toleration["value"]))) is not None:
            wrong.append(invalid_value(f"{where}.operator", toleration["value"], bad))
        if effect and effect not in _EFFECTS:
            wrong.append(not_supported(f"{where}.effect", effect, _EFFECTS))


def _gates(gates: list[Object], field: str, wrong: list[FieldError]) -> None:
    seen = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        if (text := qualified_name_error(name)) is not None:
            wrong.append(invalid_value(f"{field}[{i}].name", name, text))
        if name in seen:
            wrong.append(duplicate(f"{field}[{i}]", name))
        seen.add(name)


def _spread(constraints: list[Object], field: str, wrong: list[FieldError]) -> None:
    seen = set()
    for i, constraint in enumerate(constraints):
        where = f"{field}[{i}]"
        if (constraint.get("maxSkew") or 0) <= 0:
            wrong.append(invalid_value(f"{where}.maxSkew", constraint.get("maxSkew"), "must be greater than zero"))
        key, action = constraint.get("topologyKey"), constraint.get("whenUnsatisfiable")
        if not key:
            wrong.append(required(f"{where}.topologyKey", "can not be empty"))
        elif (text := qualified_name_error(key)) is not None:
            wrong.append(invalid_value(f"{where}.topologyKey", key, text))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            wrong.append(not_supported(f"{where}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if (key, action) in seen:
            wrong.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        seen.add((key, action))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                wrong.append(invalid_value(f"{where}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
                wrong.append(invalid_value(f"{where}.minDomains", domains, text))
        wrong += [
            not_supported(f"{where}.{policy}", constraint[policy], ("Honor", "Ignore"))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy")
            if constraint.get(policy) not in (None, "Honor", "Ignore")
        ]
        if constraint.get("labelSelector"):
            selector_errors(constraint["labelSelector"], f"{where}.labelSelector", wrong)


def selector_errors(selector: Object, field: str, wrong: list[FieldError]) -> None:
    """Add what is wrong with a LabelSelector."""
    wrong += label_errors(selector.get("matchLabels"), f"{field}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{field}.matchExpressions[{i}]"
        operator, values = expression.get("operator"), expression.get("values")
        if operator in ("In", "NotIn"):
            if not values:
                wrong.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                wrong.append(forbidden_field(f"{where}.values", text))
        else:
            wrong.append(invalid_value(f"{where}.operator", operator or "", "not a valid selector operator"))
        if (bad := qualified_name_error(str(expression.get("key") or ""))) is not None:
            wrong.append(invalid_value(f"{where}.key", expression.get("key") or "", bad))


_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def node_selector_errors(selector: Object, field: str, wrong: list[FieldError]) -> None:
    """Add what is wrong with a NodeSelector."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        wrong.append(required(f"{field}.nodeSelectorTerms", "must have at least one node selector term"))
    for i, term in enumerate(terms or ()):
        _node_term(term, f"{field}.nodeSelectorTerms[{i}]", wrong)


def _node_term(term: Object, field: str, wrong: list[FieldError]) -> None:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{field}.matchExpressions[{i}]"
        operator, values = expression.get("operator"), expression.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                wrong.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                wrong.append(forbidden_field(f"{where}.values", text))
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                wrong.append(required(f"{where}.values", text))
        else:
            wrong.append(invalid_value(f"{where}.operator", operator or "", "not a valid selector operator"))
        if (bad := qualified_name_error(str(expression.get("key") or ""))) is not None:
            wrong.append(invalid_value(f"{where}.key", expression.get("key") or "", bad))
    for i, expression in enumerate(term.get("matchFields") or ()):
        _node_field(expression, f"{field}.matchFields[{i}]", wrong)


def _node_field(expression: Object, field: str, wrong: list[FieldError]) -> None:
    key, operator, values = (
        expression.get("key") or "",
        expression.get("operator") or "",
        expression.get("values") or (),
    )
    if operator not in ("In", "NotIn"):
        wrong.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        wrong.append(required(f"{field}.values", text))
    if key != "metadata.name":
        wrong.append(invalid_value(f"{field}.key", key, "not a valid field selector key"))
        return
    for i, value in enumerate(values):
        if (bad := subdomain_error(value)) is not None:
            wrong.append(invalid_value(f"{field}.values[{i}]", value, bad))


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _weight(term: Object, field: str, wrong: list[FieldError]) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        wrong.append(invalid_value(f"{field}.weight", weight, "must be in the range 1-100"))


def _affinity(affinity: Object, field: str, wrong: list[FieldError]) -> None:
    if node := affinity.get("nodeAffinity"):
        where = f"{field}.nodeAffinity"
        if (needed := node.get(_REQUIRED)) is not None:
            node_selector_errors(needed, f"{where}.{_REQUIRED}", wrong)
        for i, term in enumerate(node.get(_PREFERRED) or ()):
            _weight(term, f"{where}.{_PREFERRED}[{i}]", wrong)
            _node_term(term.get("preference") or {}, f"{where}.{_PREFERRED}[{i}].preference", wrong)
    for kind in ("podAffinity", "podAntiAffinity"):
        if part := affinity.get(kind):
            where = f"{field}.{kind}"
            for i, term in enumerate(part.get(_REQUIRED) or ()):
                _pod_term(term, f"{where}.{_REQUIRED}[{i}]", wrong)
            for i, term in enumerate(part.get(_PREFERRED) or ()):
                _weight(term, f"{where}.{_PREFERRED}[{i}]", wrong)
                _pod_term(term.get("podAffinityTerm") or {}, f"{where}.{_PREFERRED}[{i}].podAffinityTerm", wrong)


def _pod_term(term: Object, field: str, wrong: list[FieldError]) -> None:
    key = term.get("topologyKey")
    if not key:
        wrong.append(required(f"{field}.topologyKey", "can not be empty"))
    elif (text := qualified_name_error(key)) is not None:
        wrong.append(invalid_value(f"{field}.topologyKey", key, text))
    for selector in ("labelSelector", "namespaceSelector"):
        if term.get(selector):
            selector_errors(term[selector], f"{field}.{selector}", wrong)
    for i, name in enumerate(term.get("namespaces") or ()):
        if (text := label_error(name)) is not None:
            wrong.append(invalid_value(f"{field}.namespaces[{i}]", name, text))


def _volumes(volumes: list[Object], field: str, wrong: list[FieldError]) -> None:
    seen = set()
    for i, volume in enumerate(volumes):
        name = volume.get("name")
        if not name:
            wrong.append(required(f"{field}[{i}].name"))
        elif (text := label_error(name)) is not None:
            wrong.append(invalid_value(f"{field}[{i}].name", name, text))
        elif name in seen:
            wrong.append(duplicate(f"{field}[{i}].name", name))
        seen.add(name)
