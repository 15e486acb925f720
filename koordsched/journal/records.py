"""The records of a journal, and their encoding: MessagePack arrays that begin with the number of the record's type.

Numbers and the order of fields are the format (`frames.FORMAT`): changing them makes a new format.
"""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Anything in a journal."""


class OfPod(Record, frozen=True):
    """A step that needs only the pod it concerns."""

    uid: str


# --- inputs: steps ---------------------------------------------------------------------------------


class Upsert(Record, frozen=True, tag=1):
    """An object of a collection (its path) appeared or changed; what the scheduler reads of it, as MessagePack.

    `anew`: the server went back in time, see `client.sink`.
    """

    path: str
    object: msgspec.Raw
    anew: bool = False


class Deleted(Record, frozen=True, tag=2):
    """An object is gone."""

    path: str
    namespace: str
    name: str
    uid: str


class Unreadable(Record, frozen=True, tag=17):
    """The API server does not let us read this collection; with an empty reason, it does again."""

    path: str
    reason: str


class Timers(Record, frozen=True, tag=4):
    """The queue looked for pods whose time has come. `at`: monotonic seconds."""

    at: float


class Attempt(Record, frozen=True, tag=5):
    """A pod (`namespace/name`) was taken from the queue; its decision follows. `at`: monotonic seconds."""

    uid: str
    pod: str
    at: float


class Binding(OfPod, frozen=True, tag=6):
    """A placed pod is on its way to be bound."""


class Bound(OfPod, frozen=True, tag=7):
    """The API server has the binding."""


class Undone(Record, frozen=True, tag=8):
    """A binding failed: name of the status code, reasons, and the plugin, if it was one."""

    uid: str
    code: str
    reasons: tuple[str, ...]
    plugin: str


class Released(OfPod, frozen=True, tag=18):
    """An assumed pod was released: the scheduler ends."""


class Evicted(OfPod, frozen=True, tag=9):
    """The evictions of this preemptor's victims were written, or failed."""


class Activated(OfPod, frozen=True, tag=10):
    """A pod is to be tried at once."""


class Leading(Record, frozen=True, tag=11):
    """Scheduling began or ended. `at`: monotonic seconds."""

    leads: bool
    at: float


class Read(Record, frozen=True, tag=27):
    """State of this plugin, which is brought up to date when it is read, was read by what is no step."""

    plugin: str


# --- inputs: answers within a step -----------------------------------------------------------------


class Answer(Record, frozen=True, tag=12):
    """What a step read of a clock, or asked. `about`: see `scheduling.recording`."""

    value: int | float | bool
    about: int


class Drawn(Record, frozen=True, tag=26):
    """A random number that a step drew."""

    value: int | float


# --- inputs: what extenders say, within an attempt -------------------------------------------------

Rows = bytes | tuple[int, ...]
"""Some of the rows of the node table: a bit for each, the first row's the highest of the first byte; or, few, one by
one."""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A question to extenders (URLs) about the nodes on these rows. `victims`: for "preempt", a digest of them."""

    verb: str
    extenders: tuple[str, ...]
    nodes: Rows
    victims: bytes = b""


class Failed(Record, frozen=True, tag=22):
    """The request to the extender failed."""

    text: str


class Filtered(Record, frozen=True, tag=23):
    """Of the nodes asked about, `gone` are not let pass. `stranger`: the first node let pass that was not asked about.

    `reasons`: (text, whether the refusal is final, nodes it was said of); of the last, asked about or not.
    """

    gone: Rows
    stranger: str | None
    reasons: tuple[tuple[str, bool, Rows], ...]


class Scored(Record, frozen=True, tag=24):
    """By extender, the scores of the nodes asked about, in order of rows; empty if it gave none."""

    scores: tuple[tuple[int, ...], ...]


class Agreed(Record, frozen=True, tag=25):
    """The candidates that may stay, in the order of the answer.

    Those that are as they were offered by position in the question; others are (node, uids, broken disruption budgets).
    """

    candidates: tuple[int | tuple[str, tuple[str, ...], int], ...]


class Consulted(Record, frozen=True, tag=20):
    """Extenders were asked, and answered. What happened until then comes before it."""

    asked: Asked
    answer: Failed | Filtered | Scored | Agreed


class LetIn(Record, frozen=True, tag=21):
    """The changes that had to wait for the attempt come before this; the attempt goes on."""


# --- decisions -------------------------------------------------------------------------------------


class Member(Record, frozen=True, tag=28):
    """The attempt goes on with this pod (`namespace/name`), which is placed together with those before it."""

    uid: str
    pod: str


class Chosen(Record, frozen=True, tag=13):
    """A node was chosen, out of this many feasible ones, with this total (None: it was the only one)."""

    node: str
    feasible: int
    total: int | None


class Evicting(Record, frozen=True, tag=14):
    """Preemption: pods (uid, `namespace/name`) have to leave a node for the pod."""

    node: str
    victims: tuple[tuple[str, str], ...]


class Refused(Record, frozen=True, tag=15):
    """No node, or not any more. `nominated`: the node it is nominated to ("": none), None if that stays as it is."""

    uid: str
    reason: str
    message: str
    plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...]
    nominated: str | None


class Promised(Record, frozen=True, tag=29):
    """A pod that stays in the queue is nominated to another node, "" for none."""

    uid: str
    node: str


# --- the state between two segments ----------------------------------------------------------------


class Checkpoint(Record, frozen=True, tag=19):
    """The scheduler's own state besides the objects, which come before it as `Upsert`s. Pods are given by uid.

    `rows`: names of nodes by row of the table, "" where there is none; `free`: rows to use again, the last first.
    `assigned`, `pending`: in the scheduler's order. `assumed`: (pod, node), not confirmed by the API server yet;
    `bindings`: those of them whose binding is under way; `to_nominated`: of these, those bound to their nominated node.
    `nominated`: (pod, node), in the order in which they count; "" for a pod whose status is about to say it.
    `evicting`: preemptors whose victims are being evicted; `victims`: (victim, preemptor). `unreadable`: paths of
    collections that may not be read, and why. `allocations`: of assumed pods, as annotations. `departed`: objects that
    are gone and still count for something. `waiting`: (pod, plugins whose word is missing on Permit). `states`: of
    plugins, by name (`framework.pluginstates`), as MessagePack. `abandoned`: (pod, node) of bindings that are under way
    although the pod is gone.
    """

    rows: tuple[str, ...]
    free: tuple[int, ...]
    assigned: tuple[str, ...]
    pending: tuple[str, ...]
    assumed: tuple[tuple[str, str], ...]
    bindings: tuple[str, ...]
    to_nominated: tuple[str, ...]
    nominated: tuple[tuple[str, str], ...]
    evicting: tuple[str, ...]
    victims: tuple[tuple[str, str], ...]
    unreadable: dict[str, str]
    allocations: dict[str, dict[str, str]]
    departed: tuple[Upsert, ...]
    waiting: tuple[tuple[str, tuple[str, ...]], ...]
    states: dict[str, msgspec.Raw]
    abandoned: tuple[tuple[Upsert, str], ...] = ()


# --- the file --------------------------------------------------------------------------------------


class Header(Record, frozen=True, tag=0):
    """The first record of a segment.

    `run` identifies the process, `segment` counts within it; with `continues` the records of the segment before lead
    here, and a checkpoint follows for those who do not have them. `software`: versions by name. `configuration`: YAML;
    `gates`: feature gates that differ from their defaults (`Name=true`). `wall` and `monotonic` are readings of both
    clocks at one moment, in seconds; `records`: how many records the process wrote into the segments before.
    """

    run: str
    segment: int
    continues: bool
    software: dict[str, str]
    configuration: str
    gates: tuple[str, ...]
    extended: bool
    max_unschedulable: float
    fair_namespaces: bool
    own_pod: tuple[str, str]
    wall: float
    monotonic: float
    records: int


class Closed(Record, frozen=True, tag=16):
    """The scheduler stopped in an orderly way."""


Step = (
    Upsert
    | Deleted
    | Unreadable
    | Timers
    | Attempt
    | Binding
    | Bound
    | Undone
    | Released
    | Evicted
    | Activated
    | Leading
    | Read
)
Outcome = Chosen | Evicting | Member | Promised | Refused
Within = Answer | Drawn | Consulted | LetIn
"""Inputs from outside within a step."""

AnyRecord = Step | Outcome | Within | Header | Checkpoint | Closed

encode = msgspec.msgpack.Encoder().encode
"""A record, or an object that goes into one, as bytes."""

_decode = msgspec.msgpack.Decoder(AnyRecord).decode


class BadRecord(ValueError):
    """Bytes that are no record of this format."""


def decode(data: bytes) -> AnyRecord:
    """The record. Raises BadRecord."""
    try:
        record: AnyRecord = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord(str(error)) from None
    return record
