"""The state machine, naively: everything that ever happened in a list, looked through each time."""


class Reference:
    def __init__(self, args, zones):
        self.args = args
        self.zones = zones
        self.now = 0.0
        self.failures = []  # [at, node, owner, still counts]
        self.nodes = {name: {"state": "closed", "openings": 0, "until": None, "probe": None} for name in zones}
        self.held = []
        self.probes = {}  # pod -> (node, since when it runs or None, begun)

    def counting(self, node):
        """(failures, owners) that count against a node."""
        recent = [f for f in self.failures if self.now - f[0] < self.args.window.seconds]
        everywhere = {
            owner
            for owner in {f[2] for f in recent}
            if len({f[1] for f in recent if f[2] == owner and f[3]}) > self.args.owner_nodes
        }
        found = [f for f in recent if f[1] == node and f[3] and f[2] not in everywhere]
        return len(found), len({f[2] for f in found})

    def enough(self, node):
        failures, owners = self.counting(node)
        return failures >= self.args.failures and owners >= self.args.distinct_owners

    def fails(self, node, owner):
        self.failures.append([self.now, node, owner, True])
        suspects = [node]
        if len(self.failed_on(owner)) > self.args.owner_nodes:
            for other in self.failed_on(owner):
                it = self.nodes[other]
                if it["state"] == "open" and it["openings"] == 1 and not self.enough(other):
                    self.forget(other)
                    self.nodes[other] = {"state": "closed", "openings": 0, "until": None, "probe": None}
                    suspects += self.held
                elif other in self.held:
                    suspects.append(other)
        for each in dict.fromkeys(suspects):
            self.judge(each)

    def failed_on(self, owner):
        recent = [f for f in self.failures if self.now - f[0] < self.args.window.seconds]
        return list(dict.fromkeys(f[1] for f in recent if f[2] == owner and f[3]))

    def judge(self, node):
        it = self.nodes[node]
        if it["state"] != "closed" or not self.enough(node):
            if node in self.held:
                self.held.remove(node)
            return
        zone = [name for name in self.zones if self.zones[name] == self.zones[node]]
        limit = max(len(zone) * self.args.max_open_percentage // 100, 1 if len(zone) > 1 else 0)
        if sum(self.nodes[name]["state"] != "closed" for name in zone) >= limit:
            if node not in self.held:
                self.held.append(node)
            return
        if node in self.held:
            self.held.remove(node)
        self.open(node, 1)

    def open(self, node, openings):
        longest = self.args.max_cool_down.seconds
        cool_down = min(self.args.cool_down.seconds * 2 ** (openings - 1), longest)
        self.forget(node)
        self.nodes[node] = {"state": "open", "openings": openings, "until": self.now + cool_down, "probe": None}

    def forget(self, node):
        self.probes.pop(self.nodes[node]["probe"], None)

    def close(self, node, healthy):
        """What failed before its probe ran is forgiven."""
        self.forget(node)
        self.nodes[node] = {"state": "closed", "openings": 0, "until": None, "probe": None}
        for failure in self.failures:
            if failure[1] == node and failure[0] <= healthy:
                failure[3] = False
        for other in list(self.held):
            self.judge(other)
        self.judge(node)

    def place(self, pod, node):
        it = self.nodes[node]
        if it["state"] == "open" or it["probe"]:
            return False
        if it["state"] == "half-open":
            it["probe"] = pod
            self.probes[pod] = [node, None, self.now]
        return True

    def free(self, pod):
        node = self.probes.pop(pod)[0]
        self.nodes[node]["probe"] = None

    def runs(self, pod):
        if pod in self.probes and self.probes[pod][1] is None:
            self.probes[pod][1] = self.now

    def probe_fails(self, pod):
        node = self.probes[pod][0]
        self.open(node, self.nodes[node]["openings"] + 1)

    def gone(self, pod):
        if pod in self.probes:
            node, healthy, _ = self.probes[pod]
            if healthy is not None and self.now - healthy > self.args.quick_crash.seconds:
                self.close(node, healthy)
            else:
                self.free(pod)

    def second(self):
        """A second passes."""
        self.now += 1
        for pod, (node, healthy, begun) in list(self.probes.items()):
            if healthy is None and self.now - begun >= self.args.probe_timeout.seconds:
                self.free(pod)
            elif healthy is not None and self.now - healthy >= self.args.probation.seconds:
                self.close(node, healthy)
        for it in self.nodes.values():
            if it["state"] == "open" and self.now >= it["until"]:
                it |= {"state": "half-open", "until": None}
        for node in list(self.held):
            self.judge(node)

    def state(self, node):
        return "held" if node in self.held else self.nodes[node]["state"]
