"""Errors of the protocol: one family, each with a `code` word and its facts in fields."""


class ProtocolError(ValueError):
    """A message or a name breaks the wire contract."""

    code = "bad_request"


class BadName(ProtocolError):
    """A name breaks its rule.

    Attributes:
        what: which kind of name (`identity`, `channel`, `message id`, …).
        value: what came, as it came.
        rule: what was expected.
    """

    def __init__(self, what: str, value: object, rule: str) -> None:
        self.what = what
        self.value = value
        self.rule = rule
        super().__init__(f"bad {what} {_shown(value)}: expected {rule}")


class BadEnvelope(ProtocolError):
    """An envelope cannot be decoded or must not be sent.

    Attributes:
        path: the member it is about, as `$.meta.timestamp` (`$` is the envelope).
        detail: what was expected and what came.
    """

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"{path}: {detail}")


class BadPayload(BadEnvelope):
    """A payload holds what JSON on the wire cannot carry, or what receivers refuse (contract §1)."""


class TooLarge(ProtocolError):
    """A message is larger than what the server takes.

    Attributes:
        what: what was too large, for people.
        size: its size in bytes, headers included.
        limit: the usable size in bytes.
    """

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(f"{what} is too large: {size} bytes, at most {limit} fit; send a reference to it instead")


def _shown(value: object, most: int = 80) -> str:
    """A value for an error message: quoted, escaped, cut."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
