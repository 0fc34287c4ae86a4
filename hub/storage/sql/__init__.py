"""Storage in a SQL database: one schema, SQLite and PostgreSQL."""
