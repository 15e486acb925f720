"""What users read in the status of their pods: what the scheduler said last."""

import json

from koordsched.scheduling.podstatus import PatchRejected


class LastWords:
    """Of one scheduler: what it said last about each pod that could not be placed."""

    def __init__(self, scheduler):
        self._said = {}
        """uid -> reason, message."""
        self._status = scheduler._status
        self._condition = scheduler.reporter.condition
        scheduler.reporter.condition = self._note
        self._send = self._status._send
        self._status._send = self._sending

    def _note(self, pod, reason, message, nominated_node):
        self._said[pod.uid] = (reason, message)
        self._condition(pod, reason, message, nominated_node)

    async def _sending(self, namespace, name, body):
        try:
            await self._send(namespace, name, body)
        except PatchRejected:
            # Refused, or withheld because the lease had run out: the next attempt to place the pod says it again.
            self._said.pop(json.loads(body).get("metadata", {}).get("uid"), None)
            raise

    def unread(self, things):
        """Texts about those of the server's pods, waiting ones, that show anything else."""
        for thing in things:
            uid = thing["metadata"]["uid"]
            said, record = self._said.get(uid), self._status._records.get(uid)
            if said is None or thing["spec"].get("nodeName"):
                continue
            if record is not None and record.written is not None and record.written.in_doubt:
                continue  # given up after many tries; the next attempt to place the pod says it again
            conditions = thing["status"].get("conditions", ())
            shown = [(one["reason"], one["message"]) for one in conditions if one["type"] == "PodScheduled"]
            if shown != [said]:
                yield f"the status of pod {thing['metadata']['name']} says {shown}, the scheduler said {said}"
