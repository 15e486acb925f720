"""Which of the promised faults came to pass in a run, and what the scheduler noticed of them.

Read from the whole trace (what was done to it) and from its log (what it says of that).
"""

import logging
import re
from collections import Counter

from tests.simulation import simulation

FAULTS = {
    "409": r": 409$",
    "429": r": 429$",
    "500": r": 500$",
    "503": r": 503$",
    "request not sent": r": not sent$",
    "connection lost before a write": r" (POST|PUT|PATCH|DELETE) .*: lost before$",
    "connection lost after a write": r" (POST|PUT|PATCH|DELETE) .*: lost after$",
    "given up before a write": r": given up before$",
    "given up after a write": r": given up after$",
    "request late": r": late$",
    "answer slow": r": slow$",
    "list stale": r": stale at \d+$",
    "list from the past": r": from the past at \d+$",
    "server behind": r": the server is behind$",
    "compacted while paging": r": compacted while paging$",
    "watch cut within an event": r"watch: cut within an event$",
    "watch broken": r"watch: breaks$",
    "watch hangs": r"watch: hangs$",
    "watch late": r"watch: late by ",
    "event once more": r"watch: an old event once more$",
    "compaction": r"compaction, while ",
    "partition, refused": r" network refusing$",
    "partition, silent": r" network silent$",
    "server away": r"server goes away$",
    "killed": r" killed$",
    "told to end": r" told to end$",
    "told to end while the others see pods late": r" told to end, the others see pods late$",
    "killed within a gang": r" is to end within a gang$",
    "stopped": r" stopped for ",
    "wall clock moved": r"wall clock moves by ",
    "node gone": r"DELETED /[nm]\d",
    "node malformed": r" \(malformed\)",
    "kind gone": r"the quota kinds are gone$",
    "extender gone": r"asks extender to \w+: refused$",
    "extender failing": r"asks extender to \w+: (500|garbage|late|lost before|lost after)$",
    "node broken": r" is broken: ",
    "node felled by a pod": r" felled by ",
    "breaker or quarantine written by hand": r" by hand: ",
    "reservation gone with its room": r"DELETED /r\d \S+ v\d+ Available node=\S+$",
    "reservation expired": r"MODIFIED /r\d \S+ v\d+ Failed ",
    "reservation used up": r"MODIFIED /r\d \S+ v\d+ Succeeded ",
    "pool published slice by slice": r"pool \S+ comes slice by slice$",
    "pool without one of its slices": r"pool \S+ lacks a slice$",
    "pool with two devices of a name": r"pool \S+ names a device twice$",
    "pool of two generations": r"pool \S+ gets an old slice back$",
    "pool gone with its driver": r"pool \S+ goes with its driver$",
    "devices tainted by a rule": r"rule \S+ taints devices NoSchedule",
    "devices tainted by a rule, NoExecute": r"rule \S+ taints devices NoExecute",
    "rule on devices gone": r"rule \S+ taints no more$",
    "pod evicted from a device": r"pod \S+ is evicted from a tainted device$",
    "pod evicted from a device after a while": r"pod \S+ is evicted from a tainted device, after",
    "devices fail after their allocation": r"devices of claim \S+ are to fail$",
    "devices never ready": r"devices of claim \S+ are never to be ready$",
    "device class gone": r"class \w+ goes$",
    "device class selects fewer": r"class gpu selects fewer devices$",
    "claim made anew while pods wait": r"claim \S+ is made anew, and pods wait$",
    "claim made anew while its pod is bound": r"claim \S+ is made anew while pod \S+ is being bound$",
    "claim replaced by a namesake": r"claim \S+ is replaced by a namesake$",
    "claim of a pod deleted": r"claim \S+ of a pod is deleted$",
    "claim allocated by another client": r"claim \S+ is allocated by another client$",
    "pod moved": r"pod \S+ is on \S+, no longer on ",
    "pod to be resized": r"pod \S+ is to be resized: ",
    "pod resized in its status alone": r"pod \S+ is resized in its status alone",
    "resize deferred": r"resize of pod \S+: deferred$",
    "resize infeasible": r"resize of pod \S+: infeasible$",
    "resize under way": r"resize of pod \S+: begun$",
    "pod deleted on its way": r"pod \S+ is deleted on its way to ",
    "pod replaced on its way": r"pod \S+ is replaced on its way to \S+, waiting$",
    "pod replaced on its way by one with a node": r"pod \S+ is replaced on its way to \S+, (?!waiting$)",
    "node gone while a pod is on its way": r"node \S+ goes while pod \S+ is on its way$",
    "pod refused on Permit": r"pod \S+ is refused while it waits$",
    "several nominated pods of a node gone": r"several promises on \S+ end: ",
    "lease write answered late": r" lease write answered late$",
    "lease not renewed any more": r" lease is not renewed any more$",
    "write slow at the end of a lease": r" write slow at the end of a lease$",
    "stopped behind the fence": r" stops behind the fence for ",
    "claim freed by another client": r"claim \S+ is freed by another client$",
}
"""Name -> how the trace tells of it."""

NOTICED = {
    "list from the past refused": r"listing again: a response older than the last one",
    "listed again after a broken watch": r"listing again: the watch told to break",
    "listed again after 410": r"listing again: .*too old resource version",
    "listed again after 410 while paging": r"listing again: .*continue parameter is too old",
    "kind found missing": r"cannot be watched \(not found\)",
    "malformed object ignored": r"cannot be decoded and is ignored",
    "answer waited for in vain": r"no answer within",
    "binding in doubt": r"unknown whether .* was bound to",
    "change of a claim or volume in doubt": r"unknown whether .* was changed",
    "status not written at once": r"status of .* not written",
    "lease lost": r"lost lease",
    "lease not renewed in time": r"cannot get or renew lease",
    "lease left to expire": r"is left to expire",
    "failure of an extender ignored": r"extender .* (is skipped|gives no scores)",
    "node over-committed by others": r"is over-committed",
}
"""Name -> what the scheduler logs of it."""

TOLD = {
    "breaker opened": r" CircuitBreakerOpened by ",
    "breaker held closed": r" CircuitBreakerHeld by ",
    "breaker closed by a probe that runs": r" CircuitBreakerClosed by ",
    "workload quarantined": r" WorkloadQuarantined by ",
}
"""Name -> the Event, in the trace, by which the scheduler says what it makes of it."""

CLAIMED = {
    "claim used by several pods": r" devices=\S+ for=\w+,\w+.* by ",
    "all devices of a node claimed": r" devices=\S+ for=\w+.* all\b.* by ",
    "admin access granted": r" devices=\S+ for=\w+.* admin\b.* by ",
    "first alternative chosen": r" devices=\S+ for=\w+.* /(big|tpus)\b.* by ",
    "later alternative chosen": r" devices=\S+ for=\w+.* /(small|part|gpu)\b.* by ",
    "extended resource served by a claim": r" \S+-extended-resources-\S+ .* devices=\S+ for=\w+.* by ",
    "reservation of a claim taken back": r"MODIFIED \S+ \S+ v\d+ devices=\S+ for= by ",
}
"""Name -> the write of a claim, in the trace, by which the scheduler answers what pods ask for."""

MET = {"stale_events": "old event left out", "failures": "request of a reflector failed"}
"""Counter of the reflectors, told at the end of every process -> name."""

DELETED_IN_THE_MIDDLE = "pod deleted while it was being bound"
KINDS = (*FAULTS, *NOTICED, *TOLD, *CLAIMED, *MET.values(), DELETED_IN_THE_MIDDLE)

_PLACED = re.compile(r" places \S+ (\S+) on (?!nowhere)")
_DELETED_UNBOUND = re.compile(r" DELETED \S+ (\S+) v\d+ node= ")
_MET = re.compile(r" met (\w+): (\d+)$")


def count(seed):
    """Name -> how often, in one run."""
    outcome = simulation.run(seed, trace_length=None, log_level=logging.DEBUG)
    found, placed = _matches(FAULTS | TOLD | CLAIMED, outcome.trace) + _matches(NOTICED, outcome.log), set()
    for line in outcome.trace:
        if (pod := _PLACED.search(line)) is not None:
            placed.add(pod[1])
        elif (pod := _DELETED_UNBOUND.search(line)) is not None:
            found[DELETED_IN_THE_MIDDLE] += pod[1] in placed
        elif (met := _MET.search(line)) is not None:
            found[MET[met[1]]] += int(met[2])
    return +found


def _matches(patterns, lines):
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    return Counter(name for line in lines for name, pattern in compiled.items() if pattern.search(line))
