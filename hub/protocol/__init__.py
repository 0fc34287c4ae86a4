"""The wire contract as pure code: envelopes, names, subjects, results. No I/O, no imports of ours."""

from hub.protocol.envelope import Envelope, Kind, Meta, format_time, make, parse, stamp
from hub.protocol.errors import BadEnvelope, BadName, BadPayload, ProtocolError, TooLarge
from hub.protocol.payload import decode_payload, encode_payload
from hub.protocol.results import Progress, Result, read_progress, read_result

__all__ = [
    "Envelope",
    "Meta",
    "Kind",
    "make",
    "parse",
    "stamp",
    "format_time",
    "encode_payload",
    "decode_payload",
    "Result",
    "Progress",
    "read_result",
    "read_progress",
    "ProtocolError",
    "BadName",
    "BadEnvelope",
    "BadPayload",
    "TooLarge",
]
