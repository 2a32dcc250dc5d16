"""What one member has still to send to another one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from amphw.replicas.ako.message import Message
from amphw.replicas.ako.sender import Outbox
from amphw.replicas.elastic.link import Head

_NOTHING = np.empty(0, np.uint8)


class Queue:
    """What is to be sent to one peer, in order. Parts of gradients that wait are merged, but not across what
    is said between them."""

    def __init__(self) -> None:
        self._line: deque[tuple[Head, Outbox | None]] = deque()
        self._next: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._line) + (self._next is not None)

    def say(self, head: Head) -> None:
        self._line.append((head, None))

    def put(self, head: Head, message: Message) -> None:
        """head: of the message, by which revision it goes."""
        if not self._line or self._line[-1][1] is None:
            self._line.append((head, Outbox()))
        box = self._line[-1][1]
        assert box is not None
        box.put(message)

    def send(self, post: Callable[[np.ndarray], bool], code: Callable[[Message], np.ndarray]) -> bool:
        """Send the next one -> whether it is on its way; where not, it stays the next one."""
        if self._next is None:
            head, box = self._line[0]
            if box is None:
                self._next = head.before(_NOTHING)
                self._line.popleft()
            else:
                message = box.next()
                self._next = head._replace(round=message.last).before(code(message))
                if not len(box):
                    self._line.popleft()
        if not post(self._next):
            return False
        self._next = None
        return True
