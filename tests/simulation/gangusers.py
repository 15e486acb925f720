"""Users who run gangs: jobs whose pods start together or not at all, their controllers, and late PodGroups."""

import json
from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.definitions import definitions
from tests.simulation.gangoptions import (
    GANG,
    LABEL,
    ONCE_SATISFIED,
    ONLY_WAITING,
    POLICIES,
    WAITING_AND_RUNNING,
    gang_of,
)
from tests.simulation.invariants import is_gone

API_VERSION, KIND = "scheduling.sigs.k8s.io/v1alpha1", "PodGroup"
NAMESPACES = ("default", "other")


class GangUsers:
    """Acts on pods and PodGroups. `jobs` by gang id: what users want, whatever has become of it."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.plan = simulation.plan
        self._simulation = simulation
        self.rng = Random(f"{simulation.plan.seed} gang users")
        self.jobs = {}
        self._names = 0
        for thing in definitions("podgroups"):
            self.server.insert(thing)

    # --- what happens ------------------------------------------------------------------------------

    def settle_in(self):
        """What exists before any scheduler starts."""
        for _ in range(self.rng.randint(7, 10) if self.plan.rivals else self.rng.randint(0, 3)):
            self._start_jobs()

    def actions(self):
        """(weight, action) of what happens."""
        more = [(3, self._start_mixed), (2, self._bind_member)] if self.plan.mixed_groups else []
        return [
            *more,
            (5, self._start_jobs),
            (3, self._grow),
            (4, self._lose_member),
            (4, self._replace_lost),
            (2, self._finish_member),
            (2, self._resize),
            (1, self._regroup),
            (1, self._remove_group),
            (3, self._put_group),
            (2, self._open_gate),
            (2, self._end_job),
        ]

    def tidy_up(self):
        """Most that is missing comes, some of it late; then jobs come and go, which makes and takes room."""
        for gang_id in sorted(self.jobs):
            chance = self.rng.random()
            if chance < 0.5:
                self._complete(gang_id)
            elif chance < 0.7:
                call_later(self.rng.uniform(5, 20), self._complete, gang_id)
        for _ in range(self.rng.choice([0, 1, 2, 5])):
            call_later(self.rng.uniform(0, 20), self._start_jobs)
        for _ in range(self.rng.randint(0, 5)):
            call_later(self.rng.uniform(15, 30), self._end_job)
            call_later(self.rng.uniform(15, 30), self._lose_member)
        for _ in range(self.rng.randint(0, 3)):
            call_later(self.rng.uniform(20, 30), self._replace_lost)
        if self.plan.mixed_groups:
            for _ in range(2):
                call_later(self.rng.uniform(0, 20), self._start_mixed)
                call_later(self.rng.uniform(20, 35), self._bind_member)

    def _complete(self, gang_id):
        job = self.jobs.get(gang_id)
        if job is None:
            return
        self._put_group_of(job)
        for pod in self._members(gang_id):
            if pod["spec"].get("schedulingGates"):
                self._ungate(pod)
        self._fill(job)

    # --- jobs --------------------------------------------------------------------------------------

    def _start_jobs(self):
        """One gang, or some that start together."""
        if self._simulation.users.room() <= 0:
            return
        count = self.rng.choice([2, 2, 3]) if self.rng.random() < 0.25 else 1
        self._start([self._new_job() for _ in range(count)])

    def _start_mixed(self):
        """Gangs that start together; the members that are left go on alone, those of others do not."""
        if self._simulation.users.room() <= 0:
            return
        jobs = [self._new_job() for _ in range(2)]
        policies = (ONCE_SATISFIED, self.rng.choice([ONLY_WAITING, WAITING_AND_RUNNING, WAITING_AND_RUNNING]))
        for job, policy in zip(jobs, policies, strict=True):
            job["options"][GANG + "match-policy"] = policy
            job["min"] = self.rng.choice([1, 1, 2])
            job["total"] = job["min"] + self.rng.choice([1, 1, 2])
        self._start(jobs)

    def _start(self, jobs):
        count = len(jobs)
        if count > 1:
            ids = [job["id"] for job in jobs]
            if self.rng.random() < 0.1:
                ids.append("default/missing")
            for job in jobs:
                job["options"][GANG + "groups"] = json.dumps(ids)
        for job in jobs:
            self.jobs[job["id"]] = job
            if job["way"] == "crd" and self.rng.random() < 0.7:
                self._put_group_of(job)
            self._fill(job, late=self.rng.random() < 0.2)

    def _new_job(self):
        rng, users = self.rng, self._simulation.users
        self._names += 1
        name, namespace = f"g{self._names}", rng.choice(NAMESPACES)
        large = self.plan.large_gangs and rng.random() < 0.4
        total = rng.randint(17, 22) if large else rng.choice([1, 2, 2, 3, 3, 4, 5])
        minimum = rng.randint(1, total) if rng.random() < 0.35 else total
        if rng.random() < 0.05:
            minimum = rng.choice([0, -1, total + 1])
        options = {}
        if rng.random() < 0.4:
            options[GANG + "mode"] = rng.choice(["NonStrict", "NonStrict", "Strict", "wrong"])
        if rng.random() < 0.6:
            key = GANG + "match-policy" if rng.random() < 0.8 else f"{LABEL}/match-policy"
            options[key] = rng.choice([*POLICIES, *POLICIES, "wrong"])
        if rng.random() < 0.1:
            options[GANG + "groups"] = rng.choice(["{", "[]", '["default/missing"]', '"x"'])
        if rng.random() < 0.2:
            options[GANG + "total-number"] = rng.choice([str(total), "wrong", "0"])
        priority = rng.choice([0, 0, 10, 100]) if "priority" in self.plan.kinds or rng.random() < 0.3 else 0
        amounts = {"cpu": rng.choice(["100m", "300m", "500m", "1", "1500m"]), "memory": rng.choice(["100Mi", None])}
        plain = (rng.choice(["web", "db", "cache"]), amounts, [], {"priority": priority}, [])
        if large:
            plain[1].update(cpu=rng.choice(["10m", "50m", "120m"]), memory=None)
        elif self.plan.rivals:
            plain[1].update(cpu=rng.choice(["300m", "500m"]), memory=None)
        templates = [plain]
        if not large and rng.random() < 0.4:
            templates = [rng.choice(users.templates), *([plain] if rng.random() < 0.5 else [])]
        quota = self._simulation.quotas.labels() if self._simulation.quotas is not None else {}
        way = rng.choice(["crd", "crd", "annotations", "annotations", "old label"])
        if way == "old label":
            minimum = max(0, minimum)  # a label with a sign is none that a server stores
        return {
            "id": f"{namespace}/{name}",
            "name": name,
            "namespace": namespace,
            "way": way,
            "min": minimum,
            "total": total,
            "options": options,
            "waiting time": rng.choice([None, None, "2s", "0s", "wrong"]),
            "templates": templates,
            "quota": quota if rng.random() < 0.8 else None,
            "indexed": rng.random() < 0.2,
            "gated": rng.random() < 0.15,
            "foreign": rng.random() < 0.05,
            "hazy": rng.random() < 0.1,
            "claims": self._simulation.claims.of_members() if self._simulation.claims is not None else None,
            "made": 0,
        }

    def _fill(self, job, late=False):
        """The controller of the job: as many members as there should be; `late`: some come later."""
        lacking = job["total"] - len([pod for pod in self._members(job["id"]) if not is_gone(pod)])
        for number in range(lacking):
            if late and number >= lacking // 2:
                call_later(self.rng.uniform(0.05, 8), self._add_member, job)
            else:
                self._add_member(job)

    def _add_member(self, job):
        if self.jobs.get(job["id"]) is not job or self._simulation.users.room() <= -20:
            return
        rng, users = self.rng, self._simulation.users
        number = job["made"]
        job["made"] += 1
        made = users._pod(job["templates"][number % len(job["templates"])])
        meta = made["metadata"]
        meta |= {"name": f"{job['name']}-{number}", "namespace": job["namespace"]}
        annotations = meta.setdefault("annotations", {})
        if job["quota"] is not None:
            meta["labels"] = {"app": meta["labels"]["app"], **job["quota"]}
        if job["way"] == "crd":
            meta["labels"][LABEL] = job["name"]
        else:
            annotations |= job["options"]
            if job["waiting time"] is not None:
                annotations[GANG + "waiting-time"] = job["waiting time"]
            if job["way"] == "annotations":
                annotations[GANG + "name"] = job["name"]
            else:
                meta["labels"][f"{LABEL}/name"] = job["name"]
            if job["hazy"] and number % 2 == 0:
                annotations.update({GANG + "min-available": rng.choice(["wrong", ""])})
            elif job["way"] == "annotations":
                annotations[GANG + "min-available"] = str(job["min"])
            else:
                meta["labels"][f"{LABEL}/min-available"] = str(job["min"])
        if job["indexed"]:
            annotations[GANG + "network-topology-index"] = str((number * 7) % 5)
        if job["claims"] is not None:
            made["spec"]["resourceClaims"] = job["claims"]
        made["spec"].pop("schedulingGates", None)
        if job["gated"] and rng.random() < 0.5:
            made["spec"]["schedulingGates"] = [{"name": "wait"}]
        if job["foreign"] and number == 1:
            made["spec"]["schedulerName"] = "other-scheduler"
        users.insert(made)

    def _members(self, gang_id):
        return [pod for pod in self.server.objects("Pod") if gang_of(pod) == gang_id]

    def _some_job(self):
        return self.jobs[self.rng.choice(sorted(self.jobs))] if self.jobs else None

    def _some_member(self, wanted=lambda pod: True):
        found = [pod for pod in self.server.objects("Pod") if gang_of(pod) is not None and wanted(pod)]
        return self.rng.choice(found) if found else None

    def _grow(self):
        """One member more than there were to be."""
        job = self._some_job()
        if job is not None and self._simulation.users.room() > 0:
            job["total"] += 1
            self._add_member(job)

    def _lose_member(self):
        """Pending, on its way to a node, or there."""
        pod = self._some_member()
        if pod is not None:
            meta, grace = pod["metadata"], self.rng.choice([0, None, 5])
            self.server.remove("Pod", meta["name"], meta["namespace"], grace=grace)

    def _replace_lost(self):
        job = self._some_job()
        if job is not None:
            self._fill(job)

    def _bind_member(self):
        """Another client binds one that waits with members of other gangs."""
        pod = self._some_member(lambda pod: self._waits_with_others(pod))
        nodes = self.server.objects("Node")
        if pod is not None and nodes:
            meta, node = pod["metadata"], self.rng.choice(nodes)
            self.server.registry.bind(meta["namespace"], meta["name"], meta["uid"], node["metadata"]["name"])

    def _waits_with_others(self, pod):
        job, spec = self.jobs.get(gang_of(pod)), pod["spec"]
        stuck = spec.get("nodeName") or spec.get("schedulingGates") or is_gone(pod)
        return job is not None and not stuck and "," in job["options"].get(GANG + "groups", "")

    def _finish_member(self):
        pod = self._some_member(lambda pod: pod["spec"].get("nodeName") and not is_gone(pod))
        if pod is not None:
            phase = self.rng.choice(["Succeeded", "Succeeded", "Failed"])
            self._change("Pod", pod, lambda changed: changed["status"].update(phase=phase))

    def _open_gate(self):
        pod = self._some_member(lambda pod: pod["spec"].get("schedulingGates"))
        if pod is not None:
            self._ungate(pod)

    def _ungate(self, pod):
        self._change("Pod", pod, lambda changed: changed["spec"].pop("schedulingGates", None))

    def _end_job(self):
        """The job is over, with all that belongs to it."""
        job = self._some_job()
        if job is None:
            return
        del self.jobs[job["id"]]
        for pod in self._members(job["id"]):
            self.server.remove("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        if self.rng.random() < 0.7:
            self.server.remove(KIND, job["name"], job["namespace"], api_version=API_VERSION)

    # --- PodGroups ---------------------------------------------------------------------------------

    def _put_group(self):
        """The PodGroup of a job appears; seldom one for a gang that its pods declare."""
        wanted = [job for _, job in sorted(self.jobs.items()) if job["way"] == "crd" or self.rng.random() < 0.05]
        absent = [job for job in wanted if self._group(job) is None]
        if absent:
            self._put_group_of(self.rng.choice(absent))

    def _put_group_of(self, job):
        if self._group(job) is not None or (job["way"] != "crd" and self.rng.random() < 0.9):
            return
        spec = {"minMember": job["min"]}
        if self.rng.random() < 0.3:
            spec["scheduleTimeoutSeconds"] = self.rng.choice([0, 2, 30])
        meta = {"name": job["name"], "namespace": job["namespace"], "annotations": dict(job["options"])}
        self.server.insert({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec})

    def _group(self, job):
        return self.server.get(KIND, job["name"], job["namespace"], API_VERSION)

    def _some_group(self):
        groups = self.server.objects(KIND, API_VERSION)
        return self.rng.choice(groups) if groups else None

    def _resize(self):
        """A PodGroup wants more or fewer members at once."""
        group = self._some_group()
        if group is not None:
            minimum = max(0, group["spec"]["minMember"] + self.rng.choice([-2, -1, 1, 1]))
            self._change(KIND, group, lambda changed: changed["spec"].update(minMember=minimum))

    def _regroup(self):
        """Another policy, or other companions."""
        group = self._some_group()
        if group is None:
            return
        others = sorted(self.jobs)
        options = {
            GANG + "match-policy": self.rng.choice(POLICIES),
            GANG + "groups": json.dumps(self.rng.sample(others, min(len(others), self.rng.choice([0, 0, 2])))),
        }
        self._change(KIND, group, lambda changed: changed["metadata"].update(annotations=options))

    def _remove_group(self):
        group = self._some_group()
        if group is not None:
            meta = group["metadata"]
            self.server.remove(KIND, meta["name"], meta["namespace"], api_version=API_VERSION)

    def _change(self, kind, thing, make):
        meta = thing["metadata"]
        api_version = API_VERSION if kind == KIND else "v1"
        self.server.change(kind, meta["name"], make, meta["namespace"], api_version)
