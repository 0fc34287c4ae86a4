"""Conformance suites are plain asserts in packages of ours: have them say what they saw."""

import pytest

pytest.register_assert_rewrite("hub.storage.conformance")
