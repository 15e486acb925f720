"""A plugin that has pods placed together, as small as can be, and what it saw."""

from koordsched.framework.interface import BeforePreFilter, PreEnqueue, PreFilter, Reserve
from koordsched.framework.jobs import Job, JobScheduling
from koordsched.framework.status import SKIP, SUCCESS, Code, Status

JOB, NEED = "example.com/job", "example.com/need"


class ListedJob(Job):
    """Members in the order of their names."""

    def __init__(self, plugin, name, first, members):
        self.plugin = plugin
        self.name = name
        self.first = first
        self.members = members
        self.tried = 0
        self.why = ""

    def next(self):
        self.plugin.step("next")
        if self.tried == len(self.members):
            return None
        self.tried += 1
        return self.members[self.tried - 1]

    def fail(self, pod, message):
        self.plugin.step("fail")
        self.why = self.why or f"{pod.name}: {message}"

    def fall_short(self):
        self.plugin.step("fall_short")
        self.why = "too few"

    def rejection(self):
        self.plugin.step("rejection")
        return self.why

    def untried(self):
        self.plugin.step("untried")
        return self.members[self.tried :]


class Together(PreEnqueue, BeforePreFilter, PreFilter, Reserve, JobScheduling):
    """Pods with the label JOB are placed together, as soon as there are as many as the label NEED says.

    `raises`: the hooks that raise, by name, or by name and pod. `order`: in which pods were reserved; `held`: those
    that are reserved now.
    """

    name = "Together"
    raises = set()
    refuses = {}
    """Hook and pod -> a status to answer with."""

    def __init__(self, args, handle):
        self.handle = handle
        self.pending = {}
        self.held = {}
        self.order = []
        self.ended = []
        self.faults = []
        self.job = None
        handle.cluster.add_observer(self)

    def step(self, hook, pod=None):
        if hook in self.raises or (pod is not None and f"{hook} {pod.name}" in self.raises):
            raise RuntimeError(f"a bug in {hook}")

    def answer(self, hook, pod):
        self.step(hook, pod)
        return self.refuses.get(f"{hook} {pod.name}", SUCCESS)

    # observer

    def pod_seen(self, pod, assigned):
        if assigned:
            self.pending.pop(pod.uid, None)
        elif JOB in pod.labels.labels:
            self.pending[pod.uid] = pod

    def pod_assigned(self, pod, assigned):
        pass

    def pod_gone(self, uid):
        self.pending.pop(uid, None)

    # plugin

    def events_to_register(self):
        return []

    def pre_enqueue(self, pod):
        return self.answer("pre_enqueue", pod)

    def admitted(self, pod):
        self.step("admitted", pod)

    def taken_up(self, pod):
        self.step("taken_up", pod)

    def begin_job(self, pod):
        self.step("begin_job", pod)
        name = pod.labels.labels.get(JOB)
        if name is None:
            return None
        members = [each for each in self.pending.values() if each.labels.labels[JOB] == name]
        self.job = ListedJob(self, name, pod, sorted(members, key=lambda each: each.name))
        return self.job

    def end_job(self, job, placed, resting):
        self.job = None
        self.ended.append((job.name, [pod.name for pod in placed], [pod.name for pod in resting]))
        self.step("end_job")

    def before_pre_filter(self, cycle, pod):
        return self.answer("before_pre_filter", pod)

    def pre_filter(self, cycle, pod):
        status = self.answer("pre_filter", pod)
        return SKIP if status.ok else status

    def reserve(self, cycle, pod, row):
        self.held[pod.uid] = pod.name
        self.order.append(pod.name)
        return self.answer("reserve", pod)

    def unreserve(self, cycle, pod, row):
        if self.held.pop(pod.uid, None) is None:
            self.faults.append(f"Unreserve of {pod.name}, which is not reserved")
        self.step("unreserve", pod)

    def permit(self, cycle, pod, row):
        status = self.answer("permit", pod)
        if not status.ok or JOB not in pod.labels.labels:
            return status, 0.0
        placed = sum(each.uid in self.held for each in self.pending.values())
        enough = placed >= int(pod.labels.labels.get(NEED, "1"))
        return (SUCCESS, 0.0) if enough else (Status(Code.WAIT), 60.0)
