"""The options that commands share: where NATS is and as whom; each beats its variable of the environment."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import typer

from hub.delivery.settings import ConnectSettings, split_servers

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The NATS server, nats://host:port; several with commas [NATS_URL]."),
]
Creds = Annotated[
    str | None, typer.Option("--creds", metavar="FILE", help="Credentials file of this identity [NATS_CREDS].")
]
NkeySeed = Annotated[str | None, typer.Option("--nkey-seed", metavar="FILE", help="Nkey seed file [NATS_NKEY_SEED].")]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="User name; the password is NATS_PASSWORD [NATS_USER].")
]
Ca = Annotated[str | None, typer.Option("--ca", metavar="FILE", help="CA certificate of the server [NATS_CA].")]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="Client certificate [NATS_CERT].")]
Key = Annotated[str | None, typer.Option("--key", metavar="FILE", help="Key of the certificate [NATS_KEY].")]
JsPrefix = Annotated[
    str | None,
    typer.Option("--js-prefix", metavar="PREFIX", help="Where JetStream's API answers [NATS_HUB_JS_PREFIX]."),
]

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}  # of every command

As = Annotated[str | None, typer.Option("--identity", "-i", metavar="ID", help="Who you are [NATS_HUB_IDENTITY].")]
From = Annotated[str | None, typer.Option("--from", "-f", metavar="ID", help="Who you are [NATS_HUB_IDENTITY].")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log lines of the connection too, on stderr.")]
ConnectTimeout = Annotated[
    float,
    typer.Option("--connect-timeout", metavar="SECS", min=0.1, help="How long to try to reach the server."),
]

CONNECT_SECS: Final = 10.0


class Connecting(msgspec.Struct, frozen=True):
    """What the options of the connection say; None where they say nothing."""

    url: str | None = None
    creds: str | None = None
    nkey_seed: str | None = None
    user: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    js_prefix: str | None = None

    def settings(self, identity: str | None) -> ConnectSettings:
        """The settings of a connection: these options, then the environment, then the defaults.

        Raises:
            BadSettings: a value that cannot be meant.
        """
        return ConnectSettings.from_environ(os.environ, identity=identity, **self.given())

    def given(self) -> dict[str, Any]:
        """What the options say, as overrides of `ConnectSettings.from_environ`."""
        servers = None if self.url is None else split_servers(self.url)
        said = {
            "servers": servers,
            "creds": self.creds,
            "nkey_seed": self.nkey_seed,
            "user": self.user,
            "ca": self.ca,
            "certificate": self.cert,
            "key": self.key,
            "js_prefix": self.js_prefix,
        }
        return {name: value for name, value in said.items() if value is not None}


_OPTIONS: Final = {
    "url": Url,
    "creds": Creds,
    "nkey_seed": NkeySeed,
    "user": User,
    "ca": Ca,
    "cert": Cert,
    "key": Key,
    "js_prefix": JsPrefix,
}


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the connection; it takes them together, as its keyword `connecting`."""
    own = inspect.signature(command, eval_str=True)
    kept = [parameter for parameter in own.parameters.values() if parameter.name != "connecting"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def with_connection(**given: Any) -> None:
        connecting = Connecting(**{name: given.pop(name) for name in _OPTIONS})
        command(**given, connecting=connecting)

    del with_connection.__wrapped__  # typer must see the signature below
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*kept, *added]]
    with_connection.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_connection.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_connection
