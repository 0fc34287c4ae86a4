from tests.support.storages import postgres_database, sqlite_template, storage_url

__all__ = ["postgres_database", "sqlite_template", "storage_url"]
