"""Databases for the tests of storage."""

pytest_plugins = ["tests.support.storages"]
