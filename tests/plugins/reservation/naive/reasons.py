"""What PostFilter says of a pod that fits nowhere, and the event about it (reservation spec 5.1, 5.2)."""

from collections import Counter

IN_WORDS = {
    "name": "didn't match the requested reservation name",
    "affinity": "didn't match affinity rules",
    "unschedulable": "is unschedulable",
    "exact": "is not exact matched",
}


def after_filter(decision, filtered):
    """The reasons in order. `filtered`: {node: Status} of the nodes that were refused.

    None for reserve pods: upstream counts the pods that they may take over, and calls them Reservations.
    """
    if decision.is_reserve:
        return []
    found = decision.diagnoses
    total = sum(each.owner_matched for each in found.values())
    if total <= 0 and not decision.has_affinity:
        return []
    matched = sum(each.name_matched for each in found.values())
    unmatched, taints, by_node = Counter(), Counter(), Counter()
    for node, each in found.items():
        unmatched.update(each.unmatched)
        taints.update(each.taints)
        by_node.update(of_node(each.remaining, filtered[node].reasons if node in filtered else ()))
    told = [(matched, "exactly matches the requested reservation name")]
    told += [(unmatched[kind], text) for kind, text in IN_WORDS.items()]
    told += [(count, f"had untolerated taint {taint}") for taint, count in sorted(taints.items())]
    told += [(count, f"for node reason that {reason}") for reason, count in sorted(by_node.items())]
    return [f"{count} Reservation(s) {text}" for count, text in told if count] + [
        f"{total} Reservation(s) matched owner total"
    ]


def of_node(remaining, reasons):
    """{reason: count}: each reason of the node counts for each Reservation that is left unexplained."""
    own = [reason for reason in reasons if reason.startswith("Reservation(s) ")]
    left = remaining - len(own)
    return {reason: left * count for reason, count in Counter(reasons).items() if reason not in own and left > 0}


def event(message):
    """The text of the event about Reservations for a pod with an affinity, None for no event."""
    head, _, rest = message.partition(" nodes are available: ")
    if not rest or not head.startswith("0/"):
        return None
    items = [item.strip(" .") for item in rest.replace(". ", ", ").split(",")]
    items = [item for item in items if item.partition(" ")[2].startswith("Reservation(s) ") and item[0].isdigit()]
    total = next((item.partition(" ")[0] for item in items if item.endswith("matched owner total")), None)
    if total is None:
        return None
    items = [item for item in items if not item.endswith("matched owner total")]
    by_name = [item for item in items if "requested reservation name" in item]
    by_node = [item for item in items if "for node reason that" in item]
    others = [item for item in items if item not in by_name and item not in by_node]
    return f"0/{total} reservations are available: {', '.join([*by_name, *others, *by_node])}."
