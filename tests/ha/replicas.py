"""Three schedulers, each behind a proxy of its own."""

import asyncio
import platform

from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from tests.ha.processes import Process, free_port
from tests.ha.proxy import Proxy

ACQUIRED = "successfully acquired lease"


class Replica:
    """One scheduler, as often as it is started."""

    def __init__(self, cluster, name, flags):
        self.name = name
        self.process = None
        self.proxy = Proxy(cluster.port)
        self._flags = flags
        self._kubeconfig = cluster.directory / f"{name}.kubeconfig"

    async def prepare(self):
        port = await self.proxy.start()
        write_kubeconfig(self._kubeconfig, kubeconfig(f"http://127.0.0.1:{port}"))

    async def start(self):
        """A new life; returns when its caches are warm."""
        self.process = await Process.start(
            "run",
            f"--kubeconfig={self._kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            *self._flags,
        )
        await self.process.wait_for("watching ")

    @property
    def leads(self):
        """Whether it has won the election in this life, and lives."""
        return self.process.running and self.process.says(ACQUIRED)


class Replicas:
    """All of them."""

    def __init__(self, cluster, count, *flags):
        self.cluster = cluster
        self.all = [Replica(cluster, f"scheduler-{i}", flags) for i in range(count)]

    async def start(self):
        for replica in self.all:
            await replica.prepare()
        await asyncio.gather(*(replica.start() for replica in self.all))

    async def stop(self):
        for replica in self.all:
            if replica.process is not None:
                await replica.process.destroy()
            await replica.proxy.stop()

    async def leader(self, within=30.0):
        """The one that acts."""
        async with asyncio.timeout(within):
            while True:
                leading = [replica for replica in self.all if replica.leads]
                if leading and self.cluster.holder.startswith(platform.node()):
                    return leading[-1]
                await asyncio.sleep(0.05)

    def output(self):
        """What they said last, for messages."""
        return "\n".join(f"{r.name}: {line}" for r in self.all for line in r.process.lines[-5:])
