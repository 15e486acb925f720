"""Which CPUs a pod gets, step by step as the specification describes it: lists, sorts and counting, nothing kept.

Besides: random machines and what is in use on them.
"""

from dataclasses import dataclass, field

from tests.plugins.nodenumaresource.topologies import cpus_of


@dataclass
class Naive:
    """One pick. `cpus`: (id, core, socket, NUMA node) of the machine; `strategy`, `bind` and policies are texts."""

    cpus: list
    available: set
    count: int
    bind: str
    exclusive: str
    strategy: str
    exclusive_by_policy: dict = field(default_factory=dict)
    """Policy to the CPUs whose pod has it."""
    holders: dict = field(default_factory=dict)
    result: list = field(default_factory=list)

    def __post_init__(self):
        self.core = {cpu: (socket, core) for cpu, core, socket, _ in self.cpus}
        self.socket = {cpu: socket for cpu, _, socket, _ in self.cpus}
        self.node = {cpu: node for cpu, _, _, node in self.cpus}
        self.per_core = len(self.cpus) // len({(s, n, c) for _, c, s, n in self.cpus})
        self.per_node = len(self.cpus) // len({(s, n) for _, _, s, n in self.cpus})
        self.per_socket = len(self.cpus) // len({s for _, _, s, _ in self.cpus})

    # What is asked everywhere.

    def need(self):
        return self.count - len(self.result)

    def free(self):
        return sorted(self.available - set(self.result))

    def directed(self, number):
        return number if self.strategy == "MostAllocated" else -number

    def conflicts(self, cpu, policies=("PCPULevel", "NUMANodeLevel")):
        """Whether a CPU is on a core or NUMA node that a pod of the same policy has, this pod included."""
        if self.exclusive not in policies:
            return False
        others = {*self.exclusive_by_policy.get(self.exclusive, ()), *self.result}
        where = self.core if self.exclusive == "PCPULevel" else self.node
        return where[cpu] in {where[other] for other in others}

    def holders_of_core(self, core):
        return sum(self.holders.get(cpu, 0) for cpu in self.free() if self.core[cpu] == core)

    def few_holders_first(self, cpus):
        return sorted(cpus, key=lambda cpu: (self.holders.get(cpu, 0), cpu))

    @staticmethod
    def grouped(cpus, where):
        return {place: [cpu for cpu in cpus if where[cpu] == place] for place in {where[cpu] for cpu in cpus}}

    def spread(self, cpus):
        if len(cpus) <= self.per_core:
            return list(cpus)
        before = [sum(self.core[other] == self.core[cpu] for other in cpus[:i]) for i, cpu in enumerate(cpus)]
        return [cpu for _, _, cpu in sorted(zip(before, range(len(cpus)), cpus, strict=True))]

    def one_of_each_core(self, cpus):
        return [cpu for i, cpu in enumerate(cpus) if self.core[cpu] not in {self.core[other] for other in cpus[:i]}]

    # The steps.

    def picked(self):
        if self.need() <= 0 or len(self.available) < self.count:
            return []
        if self.bind == "FullPCPUs" or self.per_core == 1:
            self.step_a()
        if self.bind != "FullPCPUs" and self.need():
            self.step_b()
        if self.need():
            self.step_c()
        return self.result

    def full_cores(self, cpus):
        """The CPUs of full cores, core by core."""
        cores = [(core, of_core) for core, of_core in self.grouped(cpus, self.core).items()]
        full = [(core, of_core) for core, of_core in cores if len(of_core) == self.per_core]
        full.sort(key=lambda each: (self.holders_of_core(each[0]), each[0]))
        return [cpu for _, of_core in full for cpu in sorted(of_core)]

    def step_a(self):
        n = self.need()
        if n <= self.per_node:
            for strict in (True, False):
                cpus = [cpu for cpu in self.free() if not (strict and self.conflicts(cpu, ["NUMANodeLevel"]))]
                on_socket = self.grouped(cpus, self.socket)
                nodes = list(self.grouped(self.full_cores(cpus), self.node).items())
                nodes.sort(
                    key=lambda each: (
                        self.directed(len(each[1])),
                        self.directed(len(on_socket[self.socket[each[1][0]]])),
                        each[0],
                    )
                )
                for _, of_node in nodes:
                    if len(of_node) >= n:
                        self.result += of_node[:n]
                        return
        sockets = sorted(self.grouped(self.full_cores(self.free()), self.socket).items())
        sockets.sort(key=lambda each: self.directed(len(each[1])))
        if n <= self.per_socket:
            for _, of_socket in sockets:
                if len(of_socket) >= n:
                    self.result += of_socket[:n]
                    return
        lists = [of_socket for _, of_socket in sockets]
        lists.sort(key=len, reverse=True)
        left = []
        for of_socket in lists:
            if len(of_socket) <= self.need():
                self.result += of_socket
            else:
                left.append(of_socket)
        if self.need() >= self.per_core:
            for of_socket in sorted(left, key=len):
                rest = list(of_socket)
                while rest and self.need():
                    self.result += rest[: self.per_core][: self.need()]
                    del rest[: self.per_core]
                    if self.need() < self.per_core:
                        break

    def step_b(self):
        n = self.need()
        if n <= self.per_node:
            for strict in (True, False):
                cpus = self.few_holders_first(cpu for cpu in self.free() if not (strict and self.conflicts(cpu)))
                on_socket = self.grouped(cpus, self.socket)
                nodes = sorted(self.grouped(cpus, self.node).items())
                nodes.sort(key=lambda each: self.directed(len(on_socket[self.socket[each[1][0]]])))
                nodes.sort(key=lambda each: self.directed(len(each[1])))
                for _, of_node in nodes:
                    candidates = self.one_of_each_core(of_node) if strict else of_node
                    if len(candidates) >= n:
                        self.result += self.spread(candidates)[:n]
                        return
        if n <= self.per_socket:
            for strict in (True, False):
                cpus = [cpu for cpu in self.free() if not (strict and self.conflicts(cpu, ["PCPULevel"]))]
                sockets = [
                    (socket, self.one_of_each_core(of_socket) if strict else of_socket)
                    for socket, of_socket in self.grouped(self.few_holders_first(cpus), self.socket).items()
                ]
                sockets.sort(key=lambda each: (self.directed(len(each[1])), each[0]))
                for _, candidates in sockets:
                    if len(candidates) >= n:
                        self.result += self.spread(candidates)[:n]
                        return

    def step_c(self):
        for strict in (True, False):
            cpus = [cpu for cpu in self.free() if not (strict and self.conflicts(cpu))]
            on_node, on_socket = self.grouped(cpus, self.node), self.grouped(cpus, self.socket)

            def goodness(core, of_core, on_node=on_node, on_socket=on_socket):
                socket, node = core[0], self.node[of_core[0]]
                return (
                    -sum(self.socket[cpu] == socket for cpu in self.result),
                    self.directed(len(on_socket[socket])),
                    self.directed(len(on_node[node])),
                    len(of_core),
                    socket,
                    self.holders_of_core(core),
                    core,
                )

            cores = [(goodness(core, of_core), of_core) for core, of_core in self.grouped(cpus, self.core).items()]
            in_order = [cpu for _, of_core in sorted(cores) for cpu in self.few_holders_first(of_core)]
            for cpu in self.spread(in_order):
                if self.need():
                    self.result.append(cpu)


def naive_preferring(preferred, available, count, pick):
    """`pick(available, count)` of the preferred CPUs, then of the others."""
    ours = preferred & available
    n = min(count, len(ours))
    if len(available) < count:
        return []
    return pick(ours, n) + pick(available - ours, count - n)


def random_machine(rng):
    """CPUs as (id, core, socket, NUMA node): one to four sockets, some CPUs offline, numbers in several fashions."""
    sockets, nodes = rng.randint(1, 4), rng.randint(1, 4)
    cores = rng.choice((rng.randint(1, 4), rng.randint(1, 8), rng.randint(1, 30)))
    cpus = cpus_of(sockets, nodes, cores, rng.choice((1, 2, 2, 4)), linux=rng.random() < 0.5)
    fashion = rng.random()
    if fashion < 0.15:  # cores numbered anew on each socket
        cpus = [(cpu, core % (nodes * cores), socket, node) for cpu, core, socket, node in cpus]
    elif fashion < 0.3:  # numbers that mean nothing
        names = rng.sample(range(4096), len(cpus))
        of_core = rng.sample(range(65536), sockets * nodes * cores)
        of_node = rng.sample(range(64), sockets * nodes)
        cpus = [(names[cpu], of_core[core], socket * 7, of_node[node]) for cpu, core, socket, node in cpus]
    if rng.random() < 0.3:
        cpus = rng.sample(cpus, rng.randint(max(1, len(cpus) * 2 // 3), len(cpus)))
    return cpus


def random_use(rng, cpus):
    """CPUs in use: whole cores, NUMA nodes and single ones, from none to all."""
    level = rng.choice((0, 0.1, 0.3, 0.6, 0.9))
    core_used = {core: rng.random() < level for core in {(s, c) for _, c, s, _ in cpus}}
    node_share = {node: rng.choice((0, level, 1)) for node in {n for *_, n in cpus}}
    single = rng.choice((0, 0.1, 0.5))
    return {
        cpu
        for cpu, core, socket, node in cpus
        if (core_used[socket, core] and rng.random() < 0.9)
        or (rng.random() < single and rng.random() < node_share[node])
        or node_share[node] == 1 > rng.random() * 2 * (1 - level)
    }
