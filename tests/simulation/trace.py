"""What happened: the last steps for people, a digest of all of them for comparison."""

import hashlib
from collections import deque

LAST = 400


class Trace:
    """Lines with their virtual time. `digest` is equal for equal runs, and only for those."""

    def __init__(self, time, last=LAST):
        self._time = time
        self._start = time()
        self._lines = deque(maxlen=last)
        self._hash = hashlib.blake2b(digest_size=12)
        self.steps = 0

    def __call__(self, line):
        self.steps += 1
        text = f"{self._time() - self._start:10.4f}  {line}"
        self._hash.update(text.encode())
        self._lines.append(text)

    @property
    def digest(self):
        return self._hash.hexdigest()

    @property
    def lines(self):
        """The last steps, oldest first."""
        return list(self._lines)
