"""The bytes of a segment: a line that says what it is, then frames.

A frame is the length of its payload and its CRC-32 (both uint32, little endian), and the payload: records, as a
MessagePack array of byte strings, compressed with zlib. Frames do not depend on each other. A process that dies leaves
at most its last frame incomplete.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

FORMAT = 4
_TITLE = b"koordsched journal "
MAGIC = _TITLE + b"%d\n" % FORMAT

_HEAD = struct.Struct("<II")
_LONGEST = 1 << 30
"""Maximum bytes of a payload; a greater length is damage."""

_LEVEL = 1
"""The level of zlib: what repeats most in a journal are whole objects, which the fastest level finds, too."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class NotAJournal(ValueError):
    """The file is not a journal, or one of a format that is not supported."""


class OtherFormat(NotAJournal):
    """It is a journal of a format that is not supported."""


class NotBegun(NotAJournal):
    """The file is empty, or its first line is incomplete."""


class Damaged(Exception):
    """From `offset` on the file cannot be read. `truncated`: it ends within a frame, as after a crash."""

    def __init__(self, offset: int, text: str, *, truncated: bool = False) -> None:
        super().__init__(f"{text} at byte {offset}")
        self.offset = offset
        self.truncated = truncated


def frame_of(records: Sequence[bytes]) -> bytes:
    """Encoded records as one frame."""
    payload = zlib.compress(_encode(records), _LEVEL)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def check_title(file: BinaryIO) -> None:
    """Reads the first line. Raises NotAJournal."""
    line = file.readline(len(MAGIC) + 16)
    if line == MAGIC:
        return
    if line.startswith(_TITLE) and line.endswith(b"\n"):
        version = line.removeprefix(_TITLE).strip().decode("ascii", "replace")
        raise OtherFormat(f"a journal of format {version}; this version of koordsched reads format {FORMAT}")
    if not line or MAGIC.startswith(line):
        raise NotBegun("the file is empty" if not line else "the file ends within its first line")
    raise NotAJournal("this is not a journal of koordsched")


def read_frames(file: BinaryIO) -> Iterator[list[bytes]]:
    """The records of one frame after the other, encoded. Raises Damaged, NotAJournal."""
    check_title(file)
    while True:
        offset = file.tell()
        head = file.read(_HEAD.size)
        if not head:
            return
        if len(head) < _HEAD.size:
            raise Damaged(offset, "the file ends within a frame", truncated=True)
        length, checksum = _HEAD.unpack(head)
        if length > _LONGEST:
            raise Damaged(offset, "a damaged frame (impossible length)")
        payload = file.read(length)
        if len(payload) < length:
            raise Damaged(offset, "the file ends within a frame", truncated=True)
        if zlib.crc32(payload) != checksum:
            raise Damaged(offset, "a damaged frame (wrong checksum)")
        try:
            yield _decode(zlib.decompress(payload))
        except (zlib.error, msgspec.MsgspecError) as error:
            raise Damaged(offset, f"a damaged frame ({error})") from None
