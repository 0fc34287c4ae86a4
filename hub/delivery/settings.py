"""Settings of a connection: where the server is, who we are, which credentials (contract §12)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from hub.delivery.errors import BadSettings
from hub.protocol import BadName, names, subjects
from hub.service.paths import URL_FILE, BadStateDir, state_dir

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
DEFAULT_JS_PREFIX: Final = "$JS.API"
_WEB_SCHEMES: Final = ("ws://", "wss://")
_SCHEMES: Final = ("nats://", "tls://", *_WEB_SCHEMES)


class ConnectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a connection needs to know.

    Attributes:
        servers: addresses, tried in turn (`nats://host:port`).
        identity: who we are; None for the hub itself and for tools that only look.
        token, user, password: plain credentials.
        creds, nkey_seed, ca, certificate, key: files.
        js_prefix: where the JetStream API answers; `$JS.API` but for foreign topologies.
        durable_inbox: contract §5: `auto`, `on` or `off`.
        inbox_stream, tasks_stream: stream names that are used when nobody answers the attach.
        url_source: where `servers` came from, for messages.
    """

    servers: tuple[str, ...] = (DEFAULT_URL,)
    identity: str | None = None
    token: str | None = None
    user: str | None = None
    password: str | None = None
    creds: str | None = None
    nkey_seed: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    js_prefix: str = DEFAULT_JS_PREFIX
    durable_inbox: str = "auto"
    inbox_stream: str = "HUB_INBOX"
    tasks_stream: str = "HUB_TASKS"
    url_source: str = "default"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], **overrides: Any) -> "ConnectSettings":
        """Read the environment; what is given by name beats it (as a flag does), None counts as not given.

        Raises:
            BadSettings: a variable has a value that cannot be meant, or names a file that is not there.
        """
        urls, source = _find_url(environ)
        found: dict[str, Any] = {
            "servers": urls,
            "url_source": source,
            "identity": environ.get("NATS_HUB_IDENTITY") or None,
            "token": environ.get("NATS_TOKEN") or None,
            "user": environ.get("NATS_USER") or None,
            "password": environ.get("NATS_PASSWORD") or None,
            "creds": environ.get("NATS_CREDS") or None,
            "nkey_seed": environ.get("NATS_NKEY_SEED") or None,
            "ca": environ.get("NATS_CA") or None,
            "certificate": environ.get("NATS_CERT") or None,
            "key": environ.get("NATS_KEY") or None,
            "js_prefix": environ.get("NATS_HUB_JS_PREFIX") or DEFAULT_JS_PREFIX,
            "durable_inbox": environ.get("NATS_HUB_DURABLE_INBOX") or "auto",
            "inbox_stream": environ.get("NATS_HUB_INBOX_STREAM") or "HUB_INBOX",
            "tasks_stream": environ.get("NATS_HUB_TASKS_STREAM") or "HUB_TASKS",
        }
        if overrides.get("servers"):
            found["url_source"] = "option"
        found |= {name: value for name, value in overrides.items() if value is not None}
        settings = cls(**found)
        settings.require_valid()
        return settings

    def require_valid(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            BadSettings: says which setting, what was expected and what came.
        """
        self._require_servers()
        if self.durable_inbox not in {"auto", "on", "off"}:
            raise BadSettings(f"bad NATS_HUB_DURABLE_INBOX {self.durable_inbox!r}: expected auto, on or off")
        try:
            if self.identity is not None:
                names.identity(self.identity)
            names.token(self.inbox_stream, "NATS_HUB_INBOX_STREAM")
            names.token(self.tasks_stream, "NATS_HUB_TASKS_STREAM")
            require_js_prefix(self.js_prefix, "NATS_HUB_JS_PREFIX")
        except BadName as error:
            raise BadSettings(str(error)) from error
        for variable, path in (
            ("NATS_CREDS", self.creds),
            ("NATS_NKEY_SEED", self.nkey_seed),
            ("NATS_CA", self.ca),
            ("NATS_CERT", self.certificate),
            ("NATS_KEY", self.key),
        ):
            if path is not None and not Path(path).is_file():
                raise BadSettings(
                    f"{variable} names {path!r}, which is not a file: expected the path of a readable file"
                )
        if (self.certificate is None) != (self.key is None):
            raise BadSettings("NATS_CERT and NATS_KEY go together: set both or neither")

    def anonymous(self) -> "ConnectSettings":
        """The same servers without any credentials, also without those in the addresses."""
        return ConnectSettings(servers=tuple(map(_without_credentials, self.servers)), ca=self.ca)

    def _require_servers(self) -> None:
        expected = "expected nats://host:port (or tls://, ws://, wss://)"
        if not self.servers:
            raise BadSettings(f"no server address (from {self.url_source}): {expected}")
        for server in self.servers:
            if not server.startswith(_SCHEMES) or any(blank in server for blank in " \t\r\n") or not _has_place(server):
                shown = _without_credentials(server)
                raise BadSettings(f"bad server address {shown!r} (from {self.url_source}): {expected}")
        if len({server.startswith(_WEB_SCHEMES) for server in self.servers}) > 1:
            raise BadSettings(
                f"server addresses {self.shown_servers} (from {self.url_source}): expected all of them with ws:// or "
                "wss://, or none: one client speaks one of the two"
            )

    @property
    def inbox_prefix(self) -> str:
        """The prefix of private reply subjects: one's own when there is an identity."""
        return subjects.private_inbox(self.identity) if self.identity is not None else "_INBOX"

    @property
    def shown_servers(self) -> str:
        """The addresses without credentials, for messages."""
        return ", ".join(_without_credentials(server) for server in self.servers)


def split_servers(text: str) -> tuple[str, ...]:
    """The addresses in a text that separates them with commas."""
    return tuple(address for part in text.split(",") if (address := part.strip()))


def require_js_prefix(prefix: str, what: str) -> None:
    """Refuse what is no prefix of JetStream's API: tokens joined by dots, a `$` at its front or not.

    Args:
        prefix: what came.
        what: who said it, for the error.

    Raises:
        BadName: a token of it is none.
    """
    for part in prefix.removeprefix("$").split("."):
        names.token(part, what)


def _find_url(environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    if environ.get("NATS_URL"):
        return split_servers(environ["NATS_URL"]), "NATS_URL"
    try:
        file = state_dir(environ) / URL_FILE
    except BadStateDir as error:
        raise BadSettings(str(error)) from None
    try:
        written = file.read_text().strip()
    except OSError:
        written = ""
    if written:
        return (written,), str(file)
    return (DEFAULT_URL,), "default"


def _has_place(server: str) -> bool:
    """Does an address name a host, and a port that can be, if any?"""
    try:
        parts = urlsplit(server)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # an open bracket, a port that is no number or beyond 65535
        return False


def _without_credentials(server: str) -> str:
    scheme, _, rest = server.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
