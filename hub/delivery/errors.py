"""Errors of delivery: one family; the CLI, the API and the logs render the same text."""


class DeliveryError(Exception):
    """Something between this process and the NATS server went wrong."""

    code = "unavailable"


class CannotConnect(DeliveryError):
    """No connection to the NATS server.

    Attributes:
        servers: where it was tried.
        reason: what the last try said.
        source: what named these servers: `option`, a variable, a file, or `default`.
        is_final: True when trying again cannot help (refused credentials).
    """

    def __init__(self, servers: str, reason: str, *, source: str = "option", is_final: bool = False) -> None:
        self.servers = servers
        self.reason = reason
        self.source = source
        self.is_final = is_final
        hint = "check the credentials" if is_final else "is a nats-server there? NATS_URL says where to look"
        super().__init__(f"cannot connect to NATS at {servers} (from {source}): {reason}; {hint}")


class BadSettings(DeliveryError):
    """A setting of the connection is wrong; the text says which and what was expected."""

    code = "bad_request"


class NotConnected(DeliveryError):
    """The connection is closed; nothing was sent."""

    def __init__(self, detail: str = "the connection is closed; nothing was sent") -> None:
        super().__init__(detail)


class NoResponders(DeliveryError):
    """Nobody listens on a subject.

    Attributes:
        subject: where the request went.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(f"nobody answers on {subject}")


class RequestTimedOut(DeliveryError):
    """An answer did not come in time; whether the request was taken is unknown.

    Attributes:
        subject: where the request went.
        timeout_secs: how long was waited.
    """

    def __init__(self, subject: str, timeout_secs: float) -> None:
        self.subject = subject
        self.timeout_secs = timeout_secs
        super().__init__(f"no answer on {subject} within {timeout_secs:g} s")


class PermissionDenied(DeliveryError):
    """The NATS server does not let this identity do that.

    Attributes:
        action: `publish` or `subscribe`.
        subject: the subject, as the client library reports it (lower case).
        identity: who asked.
    """

    code = "forbidden"

    def __init__(self, action: str, subject: str, identity: str | None) -> None:
        self.action = action
        self.subject = subject
        self.identity = identity
        who = f"identity {identity}" if identity else "this connection"
        super().__init__(
            f"{who} may not {action} on {subject}: ask the operator for a grant, or check NATS_HUB_IDENTITY"
        )


class StoreRefused(DeliveryError):
    """A JetStream store did not take a message.

    Attributes:
        stream: the stream that was expected.
        err_code: JetStream's error code, 0 when there was none.
        description: JetStream's own words.
    """

    def __init__(self, stream: str, err_code: int, description: str) -> None:
        self.stream = stream
        self.err_code = err_code
        self.description = description
        super().__init__(f"stream {stream} did not store it: {description}" + (f" ({err_code})" if err_code else ""))
