"""The embedded cluster with controllers, hollow nodes and a trivial binder, served on loopback from a thread."""

import asyncio
import random
import threading
from contextlib import contextmanager

from koordsched.fakecluster.clock import SystemClock, loop_call_later
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.controllers import Controllers
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from koordsched.fakecluster.http import HttpServer
from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from koordsched.fakecluster.server import ApiServer
from tests.fakecluster.binder import TurnBinder


@contextmanager
def live_cluster(directory, nodes, template):
    """Yields the path of a kubeconfig; the server ends with the block."""
    started = threading.Event()
    stopping = []
    path = directory / "kubeconfig"

    async def serve():
        registry = new_cluster(SystemClock(), random.Random(5), loop_call_later)
        controllers = Controllers(registry)
        options = HollowOptions(count=nodes, template=template, start_delay=0.1, stop_delay=0.2)
        hollow = HollowNodes(registry, options)
        api = ApiServer(registry)
        http = HttpServer(api.start)
        port = await http.start("127.0.0.1", 0, None)
        controllers.start()
        hollow.start()
        TurnBinder(registry)
        write_kubeconfig(path, kubeconfig(f"http://127.0.0.1:{port}"))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        started.set()
        await stop.wait()
        hollow.stop()
        controllers.stop()
        api.hub.close_all()
        await http.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(30), "the server did not start"
    try:
        yield path
    finally:
        stopping[0]()
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
