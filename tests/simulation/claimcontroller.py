"""The controller of claims, whose writes fail and come late like those of other clients."""

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.resourceclaim import ResourceClaimController
from koordsched.fakecluster.errors import ApiStatusError

WRITES = ("create", "replace_status", "update_record", "delete_record")


class FlakyRegistry:
    """A registry whose writes fail now and then: before, or after they were carried out."""

    def __init__(self, registry, rng):
        self._registry = registry
        self._rng = rng
        self.fails = 0.1

    def __getattr__(self, name):
        found = getattr(self._registry, name)
        return self._flaky(found) if name in WRITES else found

    def _flaky(self, write):
        def writing(*args, **more):
            draw = self._rng.random() / self.fails if self.fails else 1.0
            if draw < 0.6:
                raise ApiStatusError(409, "Conflict", "told to conflict")
            result = write(*args, **more)
            if draw < 1.0:
                raise ApiStatusError(500, "InternalError", "told to fail")
            return result

        return writing


class FlakyClaimController:
    """Starts it; `calm` ends the faults."""

    def __init__(self, registry, rng):
        self._rng = rng
        self._flaky = FlakyRegistry(registry, rng)
        context = ControllerContext(self._flaky)
        self._controller = ResourceClaimController(context)
        self._clock = registry.clock
        self._left_alone = {}
        """Key of a pod -> until when its claims are not looked after, by the registry's clock."""
        self._slow = rng.random() < 0.5
        for queue in (self._controller.queue, self._controller.pod_queue):
            queue.add = self._later(queue)
        context.pods.start(registry)
        self._controller.start()

    def calm(self):
        """From now on every write works, at once."""
        self._flaky.fails, self._slow = 0.0, False
        self._left_alone.clear()

    def leave_alone(self, pod, seconds):
        """What happens to the claims of a pod (its key) in the next seconds is only noticed after them."""
        self._left_alone[pod] = self._clock.now() + seconds

    def _later(self, queue):
        add = queue.add

        def adding(key, delay=0.0):
            late = self._slow and not delay and key not in queue._due and self._rng.random() < 0.2
            left = self._left_alone.get(key, 0.0) - self._clock.now() if queue is self._controller.pod_queue else 0.0
            add(key, max(left, self._rng.uniform(0.05, 3) if late else delay))

        return adding
