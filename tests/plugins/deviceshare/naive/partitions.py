"""GPUs by the partition table of a node: deviceshare spec 3.5."""

from tests.plugins.deviceshare.naive.request import UAU, Refused, U

WEIGHTS = {8: 10000, 4: 100, 2: 1}


def by_partition(gpus, table, healthy, in_use):
    """The minors of the best partition. `healthy`: minors that may be taken. Raises Refused."""
    if table is None:
        raise Refused(UAU, "node(s) missing GPU Partition Table")
    if gpus.count not in table:
        raise Refused(UAU, "node(s) Unsupported number of GPU requests")
    feasible = []
    for group in table[gpus.count]:
        feasible = [each for each in group if is_feasible(each, gpus, healthy, in_use)]
        if feasible or gpus.restricted:
            break
    if not feasible:
        raise Refused(U, "Insufficient Partitioned GPU Devices")
    best = max(feasible, key=lambda each: rest_score(each, table, gpus.count, in_use))  # the first of several
    return best["minors"]


def is_feasible(partition, gpus, healthy, in_use):
    minors = set(partition["minors"])
    if minors & in_use or not minors <= healthy:
        return False
    if gpus.bandwidth is None:
        return True
    return partition["bandwidth"] is not None and gpus.bandwidth <= partition["bandwidth"]


def rest_score(partition, table, count, in_use):
    """How good the partitions are that stay whole."""
    taken = in_use | set(partition["minors"])
    return sum(
        weight * other["score"]
        for size, weight in WEIGHTS.items()
        if size >= count and size in table
        for other in table[size][0]
        if not taken & set(other["minors"])
    )
