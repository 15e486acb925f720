"""The journal: what the scheduler was told and what it decided, written down so that it can be repeated.

* `records` are the things written; `recorder` makes them of what a running scheduler tells it
  (`koordsched.scheduling.recording`), without what the scheduler does not read (`redaction`).
* `frames` and `segments` are the file: compressed, checked, cut into segments of limited size; `writer` fills it from a
  thread of its own, so that a slow disk holds up nobody. `header` begins a segment, `checkpoint` is the state that a
  segment starts from when those before it may be gone.
* `passage` goes through a journal. `course` repeats it: `replaying` puts records into a scheduler that is cut off from
  the world (`silence`), and `repeating` compares what it decides with what was decided. `comparing` asks another
  configuration for its `verdict` on each decision, on a scheduler that is `following` history. `tally` counts.
"""
