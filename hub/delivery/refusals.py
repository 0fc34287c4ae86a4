"""Errors of what is configured: a delivery config that cannot be taken, a stream or consumer that JetStream refuses."""

from collections.abc import Sequence

import msgspec

from hub.delivery.errors import DeliveryError


class ConfigError(DeliveryError):
    """The delivery config cannot be taken.

    Attributes:
        source: the file, or what stands for it.
    """

    code = "config"

    def __init__(self, source: str, detail: str) -> None:
        self.source = source
        super().__init__(f"delivery config {source}: {detail}")


class ConfigNotReadable(ConfigError):
    """The file that was named cannot be read."""

    code = "no_input"


class BadConfig(ConfigError):
    """A key or value of the delivery config is wrong.

    Attributes:
        path: the key it is about, as `inbox.replicas`; empty for the whole.
        detail: what was expected and what came.
    """

    def __init__(self, source: str, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(source, f"{path}: {detail}" if path else detail)


class JetStreamError(DeliveryError):
    """JetStream answered a request of its API with an error.

    Attributes:
        what: what was asked, for people (`stream HUB_INBOX: create`).
        status: its HTTP-like code.
        err_code: JetStream's own error code, 0 when there was none.
        description: its own words.
    """

    def __init__(self, what: str, status: int, err_code: int, description: str, advice: str = "") -> None:
        self.what = what
        self.status = status
        self.err_code = err_code
        self.description = description
        advised = f"; {advice}" if advice else ""
        super().__init__(f"{what}: {self.reason}{advised}")

    @property
    def reason(self) -> str:
        """JetStream's words and code."""
        return f"{self.description}, JetStream error {self.err_code or self.status}"


class JetStreamDisabled(DeliveryError):
    """JetStream does not answer: it is off, off for this account, or this is an account without access to it."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(
            f"{what}: {reason}; durable delivery needs a nats-server with JetStream (`jetstream {{ store_dir: … }}`) "
            "that is enabled for the hub's account"
        )


class QuotaExceeded(JetStreamError):
    """A limit of the account or of the server does not let JetStream do that."""


class StreamMissing(JetStreamError):
    """The stream is not there."""

    code = "not_found"


class ConsumerMissing(JetStreamError):
    """The consumer is not there."""

    code = "not_found"


class ServerTooOld(DeliveryError):
    """The nats-server is older than durable delivery can stand on."""

    code = "config"

    def __init__(self, found: str, floor: str, reason: str) -> None:
        self.found = found
        self.floor = floor
        super().__init__(
            f"nats-server {found} is too old for durable delivery: {floor} or newer is needed ({reason}); "
            "upgrade it, or start the hub without --durable"
        )


class FieldDrift(msgspec.Struct, frozen=True):
    """One field of a stream or consumer that is not what the config asks for.

    Attributes:
        field: the field, named as JetStream's API names it (`max_age` in nanoseconds).
        found: what it is; None when it is unset.
        wanted: what was asked for; None when it must be unset.
    """

    field: str
    found: object
    wanted: object

    def __str__(self) -> str:
        return f"{self.field} is {msgspec.json.encode(self.found).decode()}, asked was " + (
            "none" if self.wanted is None else msgspec.json.encode(self.wanted).decode()
        )


class StreamRefused(DeliveryError):
    """JetStream does not give a stream, or a consumer on it, the config that was asked for.

    Attributes:
        stream: which stream.
        consumer: which consumer on it; empty when it is about the stream.
        drift: the fields, what they are and what was asked.
        reason: JetStream's words, or ours.
        way_out: what to do.
    """

    code = "config"

    def __init__(
        self, stream: str, *, reason: str, way_out: str, drift: Sequence[FieldDrift] = (), consumer: str = ""
    ) -> None:
        self.stream = stream
        self.consumer = consumer
        self.drift = tuple(drift)
        self.reason = reason
        self.way_out = way_out
        subject = f"consumer {consumer} on stream {stream}" if consumer else f"stream {stream}"
        fields = ": " + "; ".join(map(str, self.drift)) if self.drift else ""
        super().__init__(f"{subject}{fields}: {reason}; {way_out}")
