"""A profile as the queue sees it: its PreEnqueue plugins, its queueing hints, and which pods are equivalent."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.extender.wire import MAX_MESSAGE, clipped
from koordsched.framework.interface import PreEnqueue
from koordsched.framework.profile import Profile
from koordsched.framework.status import Code
from koordsched.queue.gating import PreEnqueue as PreEnqueueCheck
from koordsched.queue.hints import HintRegistration, HintTable, every_event
from koordsched.queue.queue import QueueProfile
from koordsched.queue.unschedulable import EquivalenceKey
from koordsched.scheduling.decisions import EXTENDER
from koordsched.scheduling.equivalencekeys import EquivalenceKeys
from koordsched.scheduling.timing import HintTimes
from koordsched.scheduling.waitnotices import WaitNotices


def queue_profile(profile: Profile, times: HintTimes, notices: WaitNotices, *, extended: bool) -> QueueProfile[Pod]:
    """What the queue has to know of a profile. `extended`: there are extenders, whose refusals any event may end."""
    registrations = _registrations(profile)
    if extended:
        # It is unknown what an extender waits for.
        registrations.extend(every_event(EXTENDER))
    hints = HintTable(registrations, times)
    checks = {plugin.name: _check(plugin, notices) for plugin in profile.pre_enqueue}
    for plugin in profile.pre_enqueue:
        if type(plugin).reworded is not PreEnqueue.reworded:
            notices.follow(plugin.name, plugin.reworded, checks[plugin.name])
    return QueueProfile(
        hints,
        checks,
        EquivalenceKeys(profile, hints).of,
        [plugin.admitted for plugin in profile.pre_enqueue if type(plugin).admitted is not PreEnqueue.admitted],
        {plugin.name: plugin.gated for plugin in profile.pre_enqueue if type(plugin).gated is not PreEnqueue.gated},
    )


def equivalence_keys(profile: Profile) -> EquivalenceKey[Pod]:
    """Which pods the profile cannot tell apart, where there is no queue."""
    return EquivalenceKeys(profile, HintTable(_registrations(profile))).of


def _registrations(profile: Profile) -> list[HintRegistration[Pod]]:
    registrations: list[HintRegistration[Pod]] = []
    for plugin in profile.plugins.values():
        events = plugin.events_to_register()
        registrations.extend(every_event(plugin.name) if events is None else events)
    return registrations


def _check(plugin: PreEnqueue, notices: WaitNotices) -> PreEnqueueCheck[Pod]:
    """The plugin as the queue asks it; pods gated by a plugin other than SchedulingGates are reported."""
    tells = plugin.name != "SchedulingGates"

    def refusal(pod: Pod) -> str | None:
        status = plugin.pre_enqueue(pod)
        if tells and (status.ok or status.code is Code.WAIT):
            notices.end(pod, plugin.name)
        elif tells:
            message = clipped(f"gated by plugin {plugin.name}: {status.message}", MAX_MESSAGE)
            notices.begin(pod, plugin.name, "Gated", message)
        return None if status.ok else status.message

    return refusal
