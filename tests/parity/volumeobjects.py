"""Volumes and claims to them as a record has them in the end, compared with those of the embedded cluster."""


def volume_differences(record, outcome):
    """What differs, as texts: annotations, spec and status."""
    found = []
    for recorded in record["expected"].get("objects", ()):
        meta = recorded["metadata"]
        name = f"{recorded['kind']} {meta['name']}"
        ours = outcome.embedded.get(recorded["kind"], meta["name"], meta.get("namespace", ""))
        if ours is None:
            found.append(f"{name} is gone")
            continue
        for what, (value, expected) in {
            "annotations": (ours["metadata"].get("annotations", {}), meta.get("annotations", {})),
            "spec": (unversioned(ours["spec"]), unversioned(recorded["spec"])),
            "status": (ours.get("status", {}), recorded.get("status", {})),
        }.items():
            if value != expected:
                found.append(f"{name}: {what} {value}, expected {expected}")
    return found


def unversioned(spec):
    """A spec whose reference to a claim has no uid and version, as they are not recorded."""
    if "claimRef" not in spec:
        return spec
    return {**spec, "claimRef": {key: spec["claimRef"].get(key) for key in ("kind", "namespace", "name", "apiVersion")}}
