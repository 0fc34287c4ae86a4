"""The answer to a publish: a stream's ack, a core router's word, or a refusal (contract §2)."""

from typing import Final

import msgspec

TOO_LARGE_ERRORS: Final = frozenset({10054})  # "message size exceeds maximum allowed"


class StoreError(msgspec.Struct):
    """Why a stream did not take a message."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class PublishAnswer(msgspec.Struct):
    """Either a stream's publish ack or a core router's word."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    ok: bool | None = None
    mode: str = ""
    error: StoreError | str | None = None
    code: str = ""


decode_publish_answer: Final = msgspec.json.Decoder(PublishAnswer).decode
"""Read one; raises `msgspec.DecodeError` or `UnicodeDecodeError` when it is none."""
