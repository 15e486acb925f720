"""What it writes, watches and leads by."""

import orjson

from koordsched.client import reflector
from koordsched.client.errors import Ambiguous, ClientError
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.leaderelection import Elector
from koordsched.client.objectapplier import ObjectApplier
from koordsched.client.transport import Request
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.podstatus import PodStatusWriter
from koordsched.scheduling.scheduler import Scheduler
from tests.simulation.mutations.registry import mutation

# --- writes ----------------------------------------------------------------------------------------


def _bind(on_ambiguous, original):
    async def bind(self, pod, node, annotations=None):
        if pod.virtual:
            await original(self, pod, node, annotations)
            return
        target = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        meta |= {"annotations": annotations} if annotations else {}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": node}}
        try:
            await self.lanes.submit(Lane.BINDING, Request("POST", target, orjson.dumps(body)))
        except Ambiguous as error:
            on_ambiguous(error)
        except ClientError as error:
            raise WriteFailed(str(error)) from error

    return bind


@mutation(ApiWrites, "bind")
def binding_in_doubt_taken_for_a_failure(original):
    def fail(error):
        raise WriteFailed(str(error)) from error

    return _bind(fail, original)


@mutation(ApiWrites, "bind")
def binding_in_doubt_taken_for_a_success(original):
    return _bind(lambda error: None, original)


@mutation(ApiWrites, "is_bound")
def conflict_never_looked_into(original):
    async def is_bound(self, pod, node):
        return True

    return is_bound


@mutation(PodStatusWriter, "_body")
def status_written_to_whoever_has_the_name(original):
    def body(self, wish):
        patch = orjson.loads(original(self, wish))
        del patch["metadata"]
        return orjson.dumps(patch)

    return body


# --- watching and leading --------------------------------------------------------------------------


@mutation(ObjectApplier, "advance")
def stale_watch_events_applied(original):
    def advance(self, version):
        original(self, version)
        return True

    return advance


@mutation(reflector, "is_older")
def lists_from_the_past_believed(original):
    return lambda version, other: False


@mutation(Elector, "is_leader")
def writes_not_fenced(original):
    return lambda self: True


@mutation(Elector, "_take")
def lease_believed_in_for_too_long(original):
    def take(self, response, began):
        original(self, response, began)
        self._deadline = self.clock.boottime() + 2 * self.config.lease_duration

    return take


@mutation(Elector, "_take")
def lease_counted_from_the_answer(original):
    def take(self, response, began):
        original(self, response, self.clock.boottime())

    return take


@mutation(Lanes, "_start")
def fence_asked_before_the_write_is_sent(original):
    def start(self, write, now):
        fence = self._fence
        if fence is not None:
            passes = fence()
            self._fence = lambda: passes
        original(self, write, now)
        self._fence = fence

    return start


@mutation(Elector, "_taken")
def lease_taken_before_it_expires(original):
    return lambda self: False


@mutation(Lanes, "quiet_for")
def lease_released_while_writes_are_under_way(original):
    return lambda self, seconds: True


@mutation(Scheduler, "catch_up")
def new_leader_starts_from_what_it_has(original):
    async def catch_up(self):
        pass

    return catch_up
