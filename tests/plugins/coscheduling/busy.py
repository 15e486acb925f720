"""Gangs that come, grow, change and go by chance."""

import json
from random import Random

from tests.plugins.coscheduling.placing import API, LABEL, Gangs, annotations

POLICIES = ("once-satisfied", "only-waiting", "waiting-and-running")
MODES = ("Strict", "NonStrict")


class Busy(Gangs):
    """`step` does one thing that a user might do."""

    def __init__(self, seed, nodes=("n1", "n2", "n3"), cpu="8"):
        super().__init__(nodes, cpu, seed)
        self.draw = Random(seed)
        self.serial = 0
        self.gangs = []
        """(name, whether by PodGroup, minimum)."""

    def step(self):
        self.serial += 1
        kinds = ("gang", "gang", "gang", "annotated", "loner", "member", "gone", "gone", "regroup", "moves", "node")
        getattr(self, f"_{self.draw.choice(kinds)}")()

    def _options(self, name):
        options = {}
        if self.draw.random() < 0.5:
            options["match_policy"] = self.draw.choice(POLICIES)
        if self.draw.random() < 0.3:
            options["mode"] = self.draw.choice(MODES)
        if self.gangs and self.draw.random() < 0.3:
            other = self.draw.choice(self.gangs)[0]
            options["groups"] = json.dumps([f"default/{name}", f"default/{other}"])
        return options

    def _gang(self):
        name, minimum = f"g{self.serial}", self.draw.randint(1, 4)
        self.gangs.append((name, True, minimum))
        options = self._options(name)
        if self.draw.random() < 0.7:
            self.group(minimum, name, **options)
            self._pods_of(name)
        else:
            self._pods_of(name)
            self.group(minimum, name, **options)

    def _annotated(self):
        name, minimum = f"a{self.serial}", self.draw.randint(1, 4)
        self.gangs.append((name, False, minimum))
        self._pods_of(name, by={"min_available": str(minimum), **self._options(name)})

    def _pods_of(self, name, **more):
        cpus = [str(self.draw.randint(1, 4))] * 6 if self.draw.random() < 0.6 else ["1", "2", "3", "1", "2", "3"]
        priority = self.draw.choice((0, 0, 5))
        for number in range(self.draw.randint(1, 5)):
            self._one(f"{name}-{self.serial}-{number}", name, cpu=cpus[number], priority=priority, **more)

    def _one(self, name, gang, **more):
        if self.draw.random() < 0.1 and not more.get("node"):
            more["gates"] = ("wait",)
        if self.draw.random() < 0.05:
            more["scheduler"] = "other"
        self.pod(name, gang, **more)

    def _member(self):
        if self.gangs:
            name, by_group, minimum = self.draw.choice(self.gangs)
            node = self.draw.choice(("", "", "n1"))
            by = "PodGroup" if by_group else {"min_available": str(minimum)}
            self._one(f"{name}-x{self.serial}", name, node=node, by=by)

    def _loner(self):
        self.pod(f"l{self.serial}", by=None, cpu=str(self.draw.randint(1, 6)), priority=self.draw.choice((0, 9)))

    def _gone(self):
        names = sorted(name for _, name in self.registry.collection(self.resource("Pod")).items)
        if names:
            self.remove("Pod", self.draw.choice(names))

    def _regroup(self):
        groups = [name for name, by_group, _ in self.gangs if by_group]
        if not groups:
            return
        name = self.draw.choice(groups)
        if self.get("PodGroup", name, api_version=API) is None:
            self.group(self.draw.randint(1, 3), name)
        elif self.draw.random() < 0.2:
            self.remove("PodGroup", name, API)
        else:
            self.regroup(name, self.draw.randint(0, 4), **self._options(name))

    def _moves(self):
        groups = [name for name, by_group, _ in self.gangs if by_group]
        pods = sorted(
            name for _, name in self.registry.collection(self.resource("Pod")).items if not self.node_of(name)
        )
        if groups and pods:
            name, gang = self.draw.choice(pods), self.draw.choice(groups)
            if self.draw.random() < 0.5:
                self.change(name, {LABEL: gang})
            else:
                self.change(name, notes=annotations(min_available=str(self.draw.randint(1, 3))))

    def _node(self):
        if self.draw.random() < 0.3:
            self.node(f"x{self.serial}", "4")
