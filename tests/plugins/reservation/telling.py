"""Tells a random story to the naive model, and to whatever else listens."""

from tests.plugins.reservation.naive.cluster import Cluster
from tests.plugins.reservation.naive.controller import synchronised
from tests.plugins.reservation.naive.model import Model
from tests.plugins.reservation.randomstates import START, Story, configuration


class Teller:
    """The model goes through the story; `options`: of what is drawn.

    `listener` hears of objects (`put`, `remove`), decisions (`decided`), what the controller
    makes of a Reservation (`controlled`) and the end of each step (`ended`).
    """

    def __init__(self, seed, listener, **options):
        self.cluster = Cluster(now=START + 0.5)  # no time is up at the very moment of a look
        self.story = Story(seed, self.cluster, **options)
        self.configuration = configuration(self.story.args, self.story.draw.devices)
        self.model = Model(self.cluster, self.configuration)
        self.listener = listener(self)

    def tell(self, length=25):
        """Returns the listener in the end."""
        for step in self.story.steps(length):
            if step.what == "put":
                self.put(step.thing)
            elif step.what == "remove":
                self.cluster.remove(step.thing)
                self.listener.remove(step.thing)
            elif step.what == "decide" and not self.over(step.thing):
                self.decide(step.thing)
            self.listener.ended()
            self.cluster.now += step.seconds
            if step.seconds or self.story.rng.random() < 0.4:
                self.synchronise()
        return self.listener

    def over(self, thing):
        """Whether it is a Reservation that ended before anything was decided about it, or that waits for nothing."""
        if thing["kind"] == "Pod":
            return False
        info = self.cluster.info(thing["metadata"]["name"])
        return info.phase == "Failed" or not info.valid

    def put(self, thing):
        self.cluster.put(thing)
        self.listener.put(thing)

    def decide(self, thing):
        is_reserve = thing["kind"] == "Reservation"
        pod = self.model.reserve_pod(thing["metadata"]["name"]) if is_reserve else thing
        if not is_reserve:
            self.listener.put(thing)
        decided = self.model.decide(pod)
        node = self.listener.decided(thing, decided)
        if node is None:
            if not is_reserve:
                self.listener.remove(thing)
            return
        before = dict(self.cluster.pods), dict(self.cluster.reservations)
        self.model.place(decided, node, **self.listener.given)
        for now, was in zip((self.cluster.pods, self.cluster.reservations), before, strict=True):
            for key, changed in now.items():
                if was.get(key) is not changed:
                    self.listener.put(changed)

    def synchronise(self):
        """The controller looks at all Reservations; it is not always as quick as the scheduler."""
        for thing in list(self.cluster.reservations.values()):
            changed = synchronised(self.cluster, thing)
            self.listener.controlled(thing, changed)
            if changed is not thing:
                self.put(changed)
