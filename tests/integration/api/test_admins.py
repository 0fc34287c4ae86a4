"""Who is an API admin: by option, else by the environment; a name that nobody can have ends the start."""

import pytest

from hub.process import HubOptions, _api_admins, serve
from hub.service.exits import Exit


@pytest.mark.parametrize(
    ("given", "variable", "admins"),
    [
        ((), None, set()),
        ((), "ops, root ,x", {"ops", "root", "x"}),
        ((), " , ", set()),
        (("ops",), "root", {"ops"}),
    ],
)
def test_the_option_beats_the_environment(given: tuple[str, ...], variable: str | None, admins: set[str]) -> None:
    environ = {} if variable is None else {"NATS_HUB_API_ADMINS": variable}
    assert _api_admins(HubOptions(roles=("api",), api_admins=given), environ) == admins


@pytest.mark.parametrize("admin", ["a.b", "", "*", "hub-orchestrator", "a\r\nb"])
async def test_an_admin_that_is_no_identity_ends_the_start_as_configuration(admin: str) -> None:
    assert await serve(HubOptions(roles=("api",), api_admins=(admin,)), {}) is Exit.CONFIG
