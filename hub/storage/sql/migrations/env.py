"""Alembic's entry: runs the migrations on the connection (and in the transaction) that the migrator gives."""

from alembic import context

from hub.storage.sql.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
