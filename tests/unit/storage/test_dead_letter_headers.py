"""Headers of dead letters as they are read back."""

from hub.storage.sql.dead_letters import _headers


def test_headers_that_the_first_versions_kept_as_an_object_are_read_as_pairs() -> None:
    assert _headers({"a": "1", "b": "2"}) == _headers([["a", "1"], ["b", "2"]]) == [("a", "1"), ("b", "2")]
