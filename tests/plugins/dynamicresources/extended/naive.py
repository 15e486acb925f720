"""The rules of section 3.10 of the dra spec, read literally, sentence by sentence."""


def requests_and_mappings(spec, classes):
    """([(name, class, count)], [(container, resource, request)]); `classes`: resource -> class, of what DRA serves."""
    init = spec.get("initContainers", [])
    containers = init + spec["containers"]
    is_plain_init = [i < len(init) and c.get("restartPolicy") != "Always" for i, c in enumerate(containers)]
    requests, mappings = [], []
    for resource in sorted(classes):
        own = {}
        for i, container in enumerate(containers):
            asked = container["resources"]["requests"]
            if int(asked.get(resource, 0)) > 0:
                own[i] = (f"container-{i}-request-{sorted(asked).index(resource)}", int(asked[resource]))
        for i, (name, count) in own.items():
            if not is_plain_init[i]:
                requests.append((name, classes[resource], count))
                mappings.append((containers[i]["name"], resource, name))
        rests = []
        uses = []
        for i, (name, count) in own.items():
            if not is_plain_init[i]:
                continue
            total = 0
            for later in range(i, len(containers)):
                if total < count and later in own and not is_plain_init[later]:
                    total += own[later][1]
                    uses.append((containers[i]["name"], own[later][0]))
            if total < count:
                rests.append((name, count - total))
                uses.append((containers[i]["name"], name))
        kept = None
        for name, missing in rests:
            if kept is None or missing > kept[1]:
                kept = (name, missing)
        if kept is not None:
            requests.append((kept[0], classes[resource], kept[1]))
        given_up = {name for name, _ in rests}
        for container, name in uses:
            mappings.append((container, resource, kept[0] if name in given_up else name))
    return sorted(requests), mappings


def device_totals(nodes, slices, in_use, chosen):
    """Node -> (devices, in use): all devices that the node reaches and `chosen(driver, device)` does not refuse.

    None of `chosen` means that it cannot be said: then the node has none.
    """
    found = {}
    for node in nodes:
        devices, used, known = 0, 0, True
        for one in slices:
            spec = one["spec"]
            for device in spec["devices"]:
                if not _reaches(device if spec.get("perDeviceNodeSelection") else spec, node):
                    continue
                verdict = chosen(spec["driver"], device)
                known = known and verdict is not None
                if verdict:
                    devices += 1
                    used += (spec["driver"], spec["pool"]["name"], device["name"]) in in_use
        found[node["metadata"]["name"]] = (devices, used) if known else (0, 0)
    return found


def _reaches(where, node):
    if where.get("allNodes"):
        return True
    if where.get("nodeName"):
        return where["nodeName"] == node["metadata"]["name"]
    for term in where.get("nodeSelector", {}).get("nodeSelectorTerms", []):
        if all(node["metadata"]["labels"].get(e["key"]) in e["values"] for e in term["matchExpressions"]):
            return True
    return False
