"""Writer of results: a turn's outcome as the envelope that one of its senders gets (contract §7). Pure."""

from typing import Final

import msgspec

from hub.mailbox.records import Outcome, Outgoing
from hub.protocol import envelope as envelopes

DEFAULT_MOST_BYTES: Final = 8 * 1024 * 1024 - 8 * 1024  # contract §1, §4: max_payload 8 MB less 8 KiB
ERROR_MOST_CHARACTERS: Final = 2000  # an error's text is the only thing that is ever cut (contract §7)


class Addressee(msgspec.Struct, frozen=True):
    """One envelope that stands for a turn, and where its result goes.

    Attributes:
        sender, id: its name.
        channel: the channel of its result.
        is_direct: as a DM to the sender.
    """

    sender: str
    id: str
    channel: str
    is_direct: bool


class ResultWriter:
    """Writes result envelopes of one identity.

    Attributes:
        identity: whose results.
        most_bytes: the usable size of a message; may be set anew when the connection learns another.
    """

    def __init__(self, identity: str, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self.identity = identity
        self.most_bytes = most_bytes

    def write(self, outcome: Outcome, addressees: list[Addressee]) -> tuple[Outcome, list[Outgoing]]:
        """Write the result for each addressee.

        Returns:
            The outcome as it was told (an `error`, `too_large`, when it does not fit for one of them: all get the
            same), and the envelopes in the order of the addressees.
        """
        written = [self._render(outcome, addressee) for addressee in addressees]
        largest = max((len(outgoing.body) for outgoing in written), default=0)
        if largest <= self.most_bytes:
            return outcome, written
        if outcome.status == "done":
            told = Outcome.failed(
                "too_large",
                f"the result is too large: its message has {largest} bytes, at most {self.most_bytes} fit",
                verify=outcome.verify,
            )
        else:
            told = msgspec.structs.replace(outcome, error=(outcome.error or "")[:ERROR_MOST_CHARACTERS])
        return told, [self._render(told, addressee) for addressee in addressees]

    def _render(self, outcome: Outcome, addressee: Addressee) -> Outgoing:
        payload = msgspec.json.encode(
            {
                "status": outcome.status,
                "task_id": addressee.id,
                "for": addressee.sender,
                "result": msgspec.Raw(outcome.result_json),
                "error": outcome.error,
                "code": outcome.code,
                **({"verify": outcome.verify} if outcome.verify else {}),
            }
        )
        # The result is JSON text already: decoding and judging it again, for every alias, would cost a large one dear.
        # So the head is made with no payload and the payload's text takes the place of its `null`.
        head = envelopes.make(
            sender=self.identity,
            channel=addressee.channel,
            to=addressee.sender if addressee.is_direct else None,
            reply_to=addressee.id,
        ).body
        return Outgoing(channel=addressee.channel, body=b"".join((head.removesuffix(b"null}"), payload, b"}")))
