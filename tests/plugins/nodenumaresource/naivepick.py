"""Which CPUs a pod gets, the plain way: nodenumaresource spec 3.5, with lists that are sorted and walked.

`machine` is a naive.Machine; CPUs are numbers. Nothing here knows of the plugin's modules.
"""

from collections import Counter

NOT_ENOUGH = "not enough cpus available to satisfy request"
PCPU, NUMA_NODE = "PCPULevel", "NUMANodeLevel"


class NotEnough(Exception):
    """CPUs are short; the argument is the reason."""


def usable(machine, free, policy):
    """Of the free CPUs those that a required policy may use."""
    cores = {}
    for cpu in sorted(free):
        cores.setdefault(machine.cpus[cpu].core, []).append(cpu)
    if policy == "FullPCPUs":
        return {cpu for cpus in cores.values() if len(cpus) == machine.cpus_per_core for cpu in cpus}
    if policy == "SpreadByPCPUs":
        return {cpus[0] for cpus in cores.values()}
    return set(free)


def keeps_policy(machine, cpus, policy):
    """Whether the CPUs are what a required policy demands: whole cores, or one CPU of each core."""
    cores = Counter(machine.cpus[cpu].core for cpu in cpus)
    if policy == "FullPCPUs":
        return len(cores) * machine.cpus_per_core == len(cpus)
    return policy != "SpreadByPCPUs" or len(cores) == len(cpus)


def take_preferring(machine, free, preferred, held, n, bind, exclusive, strategy):
    """Takes from the preferred CPUs first, the rest from the others; the CPUs in the order they were taken."""
    preferred = free & preferred
    first = Pick(machine, preferred, held, min(n, len(preferred)), bind, exclusive, strategy).run() if preferred else []
    if n == len(first):
        return first
    return first + Pick(machine, free - preferred, held, n - len(first), bind, exclusive, strategy).run()


class Pick:
    """One pick under way. `held` maps a taken CPU to (number of pods on it, exclusive policy of the last one)."""

    def __init__(self, machine, free, held, n, bind, exclusive, strategy):
        self.machine = machine
        self.free = set(free)
        self.left = n
        self.full = bind == "FullPCPUs"
        self.exclusive = exclusive
        self.sign = 1 if strategy == "MostAllocated" else -1
        self.taken = []
        self.references = {cpu: count for cpu, (count, _) in held.items()} if machine.max_references > 1 else {}
        levels = [(machine.cpus[cpu], level) for cpu, (_, level) in held.items() if cpu in machine.cpus]
        self.exclusive_cores = {place.core for place, level in levels if level == PCPU}
        self.exclusive_numa = {place.numa for place, level in levels if level == NUMA_NODE}

    def run(self):
        """The CPUs in the order they are taken. Raises NotEnough."""
        if self.left < 1:
            return []
        if self.left > len(self.free):
            raise NotEnough(NOT_ENOUGH)
        steps = []
        if self.full or self.machine.cpus_per_core == 1:
            steps += [self.full_cores_of_numa, self.full_cores_of_socket, self.full_cores_of_sockets]
        if not self.full:
            steps += [self.one_numa_node, self.one_socket]
        for step in [*steps, self.anywhere]:
            step()
            if self.left < 1:
                return self.taken
        raise NotEnough("failed to allocate cpus")

    def take(self, cpus):
        for cpu in cpus:
            self.taken.append(cpu)
            self.free.discard(cpu)
            self.left -= 1
            if self.exclusive == PCPU:
                self.exclusive_cores.add(self.machine.cpus[cpu].core)
            if self.exclusive == NUMA_NODE:
                self.exclusive_numa.add(self.machine.cpus[cpu].numa)

    # What is free

    def conflicts(self, cpu, *levels):
        """Whether the CPU's core or NUMA node is taken under the exclusive policy that the pod has."""
        place = self.machine.cpus[cpu]
        if self.exclusive == PCPU and PCPU in levels:
            return place.core in self.exclusive_cores
        if self.exclusive == NUMA_NODE and NUMA_NODE in levels:
            return place.numa in self.exclusive_numa
        return False

    def by_core(self, cpus):
        cores = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.machine.cpus[cpu].core, []).append(cpu)
        return cores

    def referenced(self, cpus):
        return sum(self.references.get(cpu, 0) for cpu in cpus)

    def full_cores(self, cpus):
        """The CPUs of wholly free cores, core by core."""
        cores = {core: own for core, own in self.by_core(cpus).items() if len(own) == self.machine.cpus_per_core}
        ordered = sorted(cores, key=lambda core: (self.referenced(cores[core]), core))
        return [cpu for core in ordered for cpu in cores[core]]

    def in_order(self, cpus):
        return sorted(cpus, key=lambda cpu: (self.references.get(cpu, 0), cpu))

    def one_per_core(self, cpus):
        seen, first = set(), []
        for cpu in cpus:
            if self.machine.cpus[cpu].core not in seen:
                seen.add(self.machine.cpus[cpu].core)
                first.append(cpu)
        return first

    def spread(self, cpus):
        if len(cpus) <= self.machine.cpus_per_core:
            return cpus
        left, ordered = list(cpus), []
        while left:
            row = self.one_per_core(left)
            ordered += row
            left = [cpu for cpu in left if cpu not in row]
        return ordered

    def numa_of(self, cpu):
        return self.machine.cpus[cpu].numa

    def socket_of(self, cpu):
        return self.machine.cpus[cpu].socket

    # A: whole cores

    def full_cores_of_numa(self):
        if self.left > self.machine.cpus_per_numa:
            return
        for considerate in (True, False):
            free = [cpu for cpu in self.free if not (considerate and self.conflicts(cpu, NUMA_NODE))]
            on_socket = Counter(map(self.socket_of, free))
            lists = []
            for numa in sorted(set(map(self.numa_of, free))):
                own = [cpu for cpu in free if self.numa_of(cpu) == numa]
                cpus = self.full_cores(own)
                if cpus:
                    socket = self.socket_of(cpus[0])
                    lists.append((self.sign * len(cpus), self.sign * on_socket[socket], numa, cpus))
            for *_, cpus in sorted(lists):
                if len(cpus) >= self.left:
                    self.take(cpus[: self.left])
                    return

    def socket_lists(self):
        lists = []
        for socket in sorted(set(map(self.socket_of, self.free))):
            cpus = self.full_cores([cpu for cpu in self.free if self.socket_of(cpu) == socket])
            if cpus:
                lists.append((self.sign * len(cpus), socket, cpus))
        return [cpus for *_, cpus in sorted(lists)]

    def full_cores_of_socket(self):
        if self.left > self.machine.cpus_per_socket:
            return
        for cpus in self.socket_lists():
            if len(cpus) >= self.left:
                self.take(cpus[: self.left])
                return

    def full_cores_of_sockets(self):
        leftover = []
        for cpus in sorted(self.socket_lists(), key=len, reverse=True):
            if len(cpus) <= self.left:
                self.take(cpus)
                if self.left < 1:
                    return
            else:
                leftover.append(cpus)
        whole = self.machine.cpus_per_core
        if self.left < whole:
            return
        for cpus in sorted(leftover, key=len):
            for at in range(0, len(cpus), whole):
                self.take(cpus[at : at + whole][: self.left])  # upstream takes more than it needs here: 6.4
                if self.left < whole:
                    break

    # B: one CPU of each core

    def one_numa_node(self):
        if self.left > self.machine.cpus_per_numa:
            return
        for considerate in (True, False):
            free = [cpu for cpu in self.free if not (considerate and self.conflicts(cpu, PCPU, NUMA_NODE))]
            on_numa, on_socket = Counter(map(self.numa_of, free)), Counter(map(self.socket_of, free))
            lists = []
            for numa in sorted(on_numa):
                cpus = self.in_order(cpu for cpu in free if self.numa_of(cpu) == numa)
                socket = self.socket_of(cpus[0])
                cpus = self.one_per_core(cpus) if considerate else cpus
                lists.append((self.sign * on_numa[numa], self.sign * on_socket[socket], numa, cpus))
            for *_, cpus in sorted(lists):
                if len(cpus) >= self.left:
                    self.take(self.spread(cpus)[: self.left])
                    return

    def one_socket(self):
        if self.left > self.machine.cpus_per_socket:
            return
        for considerate in (True, False):
            free = [cpu for cpu in self.free if not (considerate and self.conflicts(cpu, PCPU))]
            lists = []
            for socket in sorted(set(map(self.socket_of, free))):
                cpus = self.in_order(cpu for cpu in free if self.socket_of(cpu) == socket)
                cpus = self.one_per_core(cpus) if considerate else cpus
                lists.append((self.sign * len(cpus), socket, cpus))
            for *_, cpus in sorted(lists):
                if len(cpus) >= self.left:
                    self.take(self.spread(cpus)[: self.left])
                    return

    # C: what is left

    def anywhere(self):
        for considerate in (True, False):
            free = [cpu for cpu in self.free if not (considerate and self.conflicts(cpu, PCPU, NUMA_NODE))]
            taken_on = Counter(map(self.socket_of, self.taken))
            on_numa, on_socket = Counter(map(self.numa_of, free)), Counter(map(self.socket_of, free))
            cores = self.by_core(free)

            def key(core, cores=cores, taken_on=taken_on, on_numa=on_numa, on_socket=on_socket):
                socket, numa = self.socket_of(cores[core][0]), self.numa_of(cores[core][0])
                return (
                    -taken_on[socket],
                    self.sign * on_socket[socket],
                    self.sign * on_numa[numa],
                    len(cores[core]),
                    socket,
                    self.referenced(cores[core]),
                    core,
                )

            ordered = [cpu for core in sorted(cores, key=key) for cpu in self.in_order(cores[core])]
            self.take(self.spread(ordered)[: self.left])
            if self.left < 1:
                return
