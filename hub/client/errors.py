"""Errors of the client: one family; the CLI, the API and the logs render the same text."""

from hub.protocol import Envelope


class ClientError(Exception):
    """The client could not do what was asked."""

    code = "internal"


class NotSent(ClientError):
    """A message was not sent; sending it again is safe.

    Attributes:
        envelope: what was to be sent.
        reason: why not, for people.
    """

    code = "unavailable"

    def __init__(self, envelope: Envelope, reason: str) -> None:
        self.envelope = envelope
        self.reason = reason
        super().__init__(f"{reason}; not sent")


class NoHub(NotSent):
    """No hub listens: neither a router nor a stream took the message (contract §2)."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope, "no hub")


class SendRefused(NotSent):
    """The hub, or the store behind it, refused the message.

    Attributes:
        code: a drop reason of contract §3.4 from a core router, else `too_large` or `unavailable`.
        err_code: JetStream's error code, 0 when a router refused.
    """

    def __init__(self, envelope: Envelope, reason: str, *, code: str, err_code: int = 0) -> None:
        self.code = code
        self.err_code = err_code
        super().__init__(envelope, f"refused: {reason}" + (f" ({err_code})" if err_code else ""))


class SendUnconfirmed(ClientError):
    """Nobody said in time whether a message is stored; it may be.

    Sending the same envelope again is safe for whoever drops repeats by `(from, id)`, as every reader here does.

    Attributes:
        envelope: what was sent; for a delegated task, `envelope.meta.id` is the task's id, to be resumed.
    """

    code = "unavailable"

    def __init__(self, envelope: Envelope, waited_secs: float, reason: str) -> None:
        self.envelope = envelope
        self.waited_secs = waited_secs
        super().__init__(f"message {envelope.meta.id} may or may not be sent: {reason} within {waited_secs:g} s")


class TaskTimedOut(ClientError):
    """A task has no result yet. Nothing was cancelled: it goes on, and may be waited for or resumed.

    Attributes:
        task_id: the task.
        worker: who works on it.
        timeout_secs: how long was waited.
    """

    code = "timeout"

    def __init__(self, task_id: str, worker: str, timeout_secs: float) -> None:
        self.task_id = task_id
        self.worker = worker
        self.timeout_secs = timeout_secs
        super().__init__(f"no result of task {task_id} from {worker} within {timeout_secs:g} s; it was not cancelled")


class FollowingEnded(ClientError):
    """A task's handle was closed, or its connection ended, before the result came; the task goes on."""

    code = "unavailable"

    def __init__(self, task_id: str, reason: str) -> None:
        self.task_id = task_id
        super().__init__(f"task {task_id} is not followed any more: {reason}; resume it to hear its result")


class InboxIsOpen(ClientError):
    """This client's inbox is open already: an identity has one reader."""

    code = "conflict"

    def __init__(self, identity: str) -> None:
        super().__init__(f"the inbox of {identity} is open already in this client: read that one, or stop it first")
