"""`hub-publish`: sends one message and says what became of it."""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from hub.cli.inputs import json_of, text_of
from hub.cli.options import CONNECT_SECS, Connecting, ConnectTimeout, From, Json, Verbose, connects
from hub.cli.output import stdout
from hub.cli.running import CommandError, console_script, run_command
from hub.client import HubClient, SendReceipt
from hub.client.client import DIRECT
from hub.protocol import names
from hub.service.exits import Exit

HELP: Final = """Send one message, and say whether it is stored.

With --to it is a direct message: a durable hub keeps it until its recipient has taken it, also while no router runs.
With --channel alone it goes to whoever listens there. With both, the channel is what the recipient sees.

TEXT is sent as {"text": TEXT}, which a worker takes as a task; - reads the text from stdin. --payload sends any JSON
as it is.

Stdout says what became of it:

\b
  stored: HUB_INGRESS 12, message 7f9c24e8-…      a durable hub has it
  heard live, not stored: message 7f9c24e8-…      a core router passed it on to whoever was there

If nobody took it, stderr says "no hub; not sent", and sending it again is safe.

\b
Exit codes:
  0    stored, or heard live
  1    not sent: no server, no hub, refused, too large, or no permission
  2    wrong usage: an option, a name, or JSON that cannot be sent
  3    no answer in time: it may or may not be sent
  130  ended by Ctrl-C

\b
Examples:
  hub-publish --from alice --to bob "are you there?"
  git diff | hub-publish --from alice --to reviewer -
  hub-publish --from ci --channel builds --kind event --payload '{"event_type": "built", "data": {"ok": true}}'
"""

SEND_SECS: Final = 10.0


class MessageKind(StrEnum):
    """What the message is (contract §1)."""

    MESSAGE = "message"
    CONTROL = "control"
    HUMAN = "human"
    STATUS = "status"
    EVENT = "event"


@connects
def publish(
    *,
    connecting: Connecting,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT|-]", help="What to say; - reads stdin.")] = None,
    sender: From = None,
    to: Annotated[
        str | None, typer.Option("--to", "-t", metavar="ID", help="The recipient of a direct message.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", "-c", metavar="NAME", help="The channel, without the prefix `channel.`.")
    ] = None,
    kind: Annotated[
        MessageKind, typer.Option("--kind", "-k", metavar="KIND", help="message, control, human, status or event.")
    ] = MessageKind.MESSAGE,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON|-", help="The payload as JSON; - reads stdin.")
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option("--reply-to", metavar="ID", help="The id of the message that this one answers.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of this message; a fresh UUID by default.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECS", min=0.1, help="How long to try to send it.")
    ] = SEND_SECS,
    connect_timeout: ConnectTimeout = CONNECT_SECS,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    async def work() -> Exit:
        if to is None and channel is None:
            raise CommandError("nowhere to send it: give --to ID, --channel NAME, or both", Exit.USAGE)
        value = _payload(text, payload)
        settings = connecting.settings(sender)
        if settings.identity is None:
            raise CommandError("who sends it? give --from ID, or set NATS_HUB_IDENTITY", Exit.USAGE)
        client = await HubClient.connect(
            settings, announce=False, timeout_secs=connect_timeout, send_timeout_secs=timeout
        )
        try:
            about: dict[str, Any] = {"kind": kind.value, "reply_to": reply_to, "message_id": message_id}
            if to is not None:
                receipt = await client.send_to(to, value, channel=channel or DIRECT, **about)
            else:
                assert channel is not None
                receipt = await client.send(channel, value, **about)
        finally:
            await client.close()
        _tell(receipt, as_json=json)
        return Exit.OK

    run_command("hub-publish", work, verbose=verbose, as_json=json)


def _payload(text: str | None, payload: str | None) -> Any:
    if (text is None) == (payload is None):
        hint = "nothing to send" if text is None else "two things to send"
        raise CommandError(f"{hint}: give TEXT, - for stdin, or --payload JSON", Exit.USAGE)
    if payload is not None:
        return json_of(text_of(payload, "--payload"), "--payload")
    assert text is not None
    return {"text": text_of(text, "TEXT")}


def said(receipt: SendReceipt) -> str:
    """What became of a message, in a few words."""
    if receipt.is_stored:
        meta = receipt.envelope.meta
        is_kept = meta.to is not None or names.is_stored_channel(meta.channel)
        what = "stored" if is_kept else "taken for whoever listens"
        return f"{what}: {receipt.stream} {receipt.stream_seq}"
    return "heard live, not stored"


def _tell(receipt: SendReceipt, *, as_json: bool) -> None:
    out, message_id = stdout(), receipt.envelope.meta.id
    if as_json:
        out.json(
            {
                "id": message_id,
                "mode": receipt.mode,
                "stored": receipt.is_stored,
                "stream": receipt.stream,
                "seq": receipt.stream_seq,
            }
        )
    else:
        out.line(f"{said(receipt)}{',' if receipt.is_stored else ':'} message {message_id}")


def hub_publish() -> None:
    """Run the console script `hub-publish`."""
    console_script("hub-publish", publish, HELP)
