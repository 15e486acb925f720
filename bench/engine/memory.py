"""`python -m bench.engine.memory`: what a cluster state takes in memory, and how long taking it in takes.

Real-size running pods are decoded from JSON one by one, as from a list, into the default profile's cluster state. The
time for decoding alone is measured on the same bytes.
"""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path

import click

from bench.engine.state import Engine
from bench.runningpods import encoded
from bench.workloads import Nodes, Pods, Workload, load
from koordsched.api import core
from koordsched.api.decoding import Decoder

_SAMPLE = 2000


def rss_mib() -> float:
    """Resident memory of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-OWNER", "uid": "owner-OWNER", "controller": True}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=5_000, show_default=True)
@click.option("--pods", default=150_000, show_default=True)
@click.option("--unique-labels", is_flag=True, help="Every pod has a label of its own, as in StatefulSets.")
def main(nodes: int, pods: int, unique_labels: bool) -> None:
    """Measure the memory of a cluster state."""
    workload = Workload(nodes=[Nodes(count=nodes, zones=["a", "b", "c"])], measure=Pods(kind="basic", count=1))
    gc.disable()
    names = [f"node-{row}" for row in range(nodes)]
    (sample,) = encoded(names, 1, owner=_OWNER, unique_labels=unique_labels, stored=True)
    decode = Decoder(core.Pod)
    started = time.process_time()
    for _ in range(_SAMPLE):
        decode(sample)
    decoding = (time.process_time() - started) / _SAMPLE
    before = rss_mib()
    engine = Engine(load(), workload)
    with_nodes = rss_mib()
    started = time.process_time()
    for text in encoded(names, pods, owner=_OWNER, unique_labels=unique_labels, stored=True):
        engine.cluster.set_pod(engine.cluster.pods.build(decode(text)))
    taking_in = (time.process_time() - started) / pods
    after = rss_mib()
    labels = ", unique labels" if unique_labels else ""
    click.echo(
        f"{nodes:,} nodes, {pods:,} running pods{labels}: {after:,.0f} MiB resident "
        f"(process {before:,.0f}, nodes {with_nodes - before:,.0f}, pods {after - with_nodes:,.0f} MiB, "
        f"{(after - with_nodes) * (1 << 20) / max(1, pods):,.0f} bytes each)"
    )
    click.echo(
        f"a pod of {len(sample):,} bytes: {decoding * 1e6:.1f} µs to decode, {taking_in * 1e6:.1f} µs to take in"
    )


if __name__ == "__main__":
    main()
