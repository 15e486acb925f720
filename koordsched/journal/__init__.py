"""The journal: the inputs and decisions of a scheduler, recorded so that they can be replayed.

* `records` are the record types; `recorder` makes records in a running scheduler (`koordsched.scheduling.recording`),
  without the fields that the scheduler does not read (`redaction`).
* `frames` and `segments` are the file: compressed, checked, cut into segments of limited size; `writer` fills it from a
  thread of its own, so that a slow disk does not block the scheduler. `header` begins a segment, `checkpoint` is the
  state that a segment starts from when those before it may be gone.
* `journalreplay` is the base of replays. `repeatingreplay` decides anew: `replayedscheduler` applies the records to
  a scheduler without an API server, and `repeating` compares its decisions with the recorded ones.
  `comparingreplay` evaluates another configuration (`verdict`) at each recorded decision, on a scheduler that is
  `following` the journal. `tally` counts.
"""
