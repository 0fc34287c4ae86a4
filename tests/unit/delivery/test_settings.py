"""The settings of a connection: what cannot be meant is refused with a reason, before anything is tried."""

import pytest

from hub.delivery.errors import BadSettings
from hub.delivery.settings import ConnectSettings


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:4222",
        "nats://127.0.0.1",
        "nats://[::1]:4222",
        "tls://user:pass@hub.example:4222",
        "nats://a:1, nats://b:2,",
        "wss://hub.example",
    ],
)
def test_addresses_of_servers_are_taken(url: str) -> None:
    assert ConnectSettings.from_environ({"NATS_URL": url}).servers


@pytest.mark.parametrize(
    "url",
    [
        ",",
        " ",
        "nats://",
        "nats://:",
        "nats://:4222",
        "nats://[::1",
        "nats://127.0.0.1:abc",
        "nats://127.0.0.1:0",
        "nats://127.0.0.1:65536",
        "nats://a:1,ws://b:2",
        "http://127.0.0.1:4222",
        "127.0.0.1:4222",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(BadSettings, match=r"address.*NATS_URL.*expected"):
        ConnectSettings.from_environ({"NATS_URL": url})


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(BadSettings) as refused:
        ConnectSettings.from_environ({"NATS_URL": "nats://alice:secret@host:port"})

    assert "secret" not in str(refused.value)


def test_a_state_folder_of_nobody_is_refused_with_its_variable() -> None:
    with pytest.raises(BadSettings, match="NATS_HUB_STATE_DIR '~nobody-here/x'"):
        ConnectSettings.from_environ({"NATS_HUB_STATE_DIR": "~nobody-here/x"})
