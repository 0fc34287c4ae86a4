"""Schema: the tables as this version knows them. `migrations/` brings a database here; a test compares the two.

`size` is about what a record weighs in a reply, in bytes: pages end by it and retention adds it up. `seq` is the order
of insertion and the second half of every cursor.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    UniqueConstraint,
)

from hub.storage.sql.types import Bytes, Key, Micros, Name

HEAD: Final = "0001"
"""The newest migration; a database that is there needs no alembic at start."""

VERSION_TABLE: Final = "hub_schema_version"
"""Not alembic's own name: a PostgreSQL database may be shared with other programs."""

metadata = MetaData()


def _seq() -> Column[Any]:
    return Column("seq", Key, primary_key=True, autoincrement=True)


hub_meta = Table(
    "hub_meta",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", Name, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    _seq(),
    Column("identity", Name, nullable=False, unique=True),
    Column("registered_at", Micros, nullable=False),
    Column("last_seen", Micros, nullable=False),
    Column("described_at", Micros),  # seen_at of the registration that capabilities and metadata are from
    Column("capabilities", Bytes, nullable=False),
    Column("metadata", Bytes, nullable=False),
    Column("size", Integer, nullable=False),
    Index("ix_agents_registered_at", "registered_at", "seq"),
    Index("ix_agents_last_seen", "last_seen"),
)

agent_capabilities = Table(
    "agent_capabilities",
    metadata,
    # A digest: a capability may be any text, and an index entry may not be of any size.
    Column("digest", LargeBinary, primary_key=True),
    Column("identity", Name, ForeignKey("agents.identity", ondelete="CASCADE"), primary_key=True),
    Index("ix_agent_capabilities_identity", "identity"),
)

envelopes = Table(
    "envelopes",
    metadata,
    _seq(),
    Column("id", Name, nullable=False),
    Column("sender", Name, nullable=False),
    Column("destination", Name, nullable=False),
    Column("channel", Name, nullable=False),
    Column("recipient", Name),
    Column("kind", Name, nullable=False),
    Column("sent_at", Micros, nullable=False),
    Column("stored_at", Micros, nullable=False),
    Column("size", Integer, nullable=False),
    Column("is_open", SmallInteger, nullable=False),  # asks its recipient for an answer and has none
    Column("is_error", SmallInteger, nullable=False),  # a result with the status `error`
    Column("reply_to", Name),  # only what is a message id
    Column("reply_text", Bytes),  # any other reply_to
    Column("payload", Bytes, nullable=False),  # last: columns behind a large value cost SQLite a walk over it
    UniqueConstraint("id", "sender", "destination", name="uq_envelopes_name"),
    Index("ix_envelopes_stored_at", "stored_at", "seq"),
    Index("ix_envelopes_sender", "sender", "stored_at", "seq"),
    Index("ix_envelopes_recipient", "recipient", "stored_at", "seq"),
    Index("ix_envelopes_channel", "channel", "stored_at", "seq"),
    Index("ix_envelopes_kind", "kind", "stored_at", "seq", "size"),  # with size: retention adds up the index alone
)
Index(
    "ix_envelopes_broadcast",  # what a channel said to all, however many direct messages carry its name
    envelopes.c.channel,
    envelopes.c.stored_at,
    envelopes.c.seq,
    sqlite_where=envelopes.c.recipient.is_(None),
    postgresql_where=envelopes.c.recipient.is_(None),
)
Index(
    "ix_envelopes_reply_to",
    envelopes.c.reply_to,
    envelopes.c.stored_at,
    envelopes.c.seq,
    sqlite_where=envelopes.c.reply_to.is_not(None),
    postgresql_where=envelopes.c.reply_to.is_not(None),
)
Index(
    "ix_envelopes_open",
    envelopes.c.recipient,
    envelopes.c.stored_at,
    envelopes.c.seq,
    sqlite_where=envelopes.c.is_open == 1,
    postgresql_where=envelopes.c.is_open == 1,
)
Index(
    "ix_envelopes_error",
    envelopes.c.stored_at,
    sqlite_where=envelopes.c.is_error == 1,
    postgresql_where=envelopes.c.is_error == 1,
)

positions = Table(
    "positions",
    metadata,
    Column("reader", Name, primary_key=True),  # `mirror` or `waves`
    Column("stream", Name, primary_key=True),
    Column("created", Micros, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    _seq(),
    Column("dead_id", Name, nullable=False, unique=True),
    Column("reason", Name, nullable=False),
    Column("detail", Bytes, nullable=False),
    Column("subject", Bytes, nullable=False),
    Column("sender", Bytes),
    Column("envelope_id", Bytes),
    Column("headers", Bytes, nullable=False),
    Column("data_size", BigInteger, nullable=False),
    Column("received_at", Micros, nullable=False),
    Column("replayed_at", Micros),
    Column("size", Integer, nullable=False),
    Column("data", Bytes, nullable=False),
    Index("ix_dead_letters_received_at", "received_at", "seq"),
    Index("ix_dead_letters_reason", "reason", "received_at", "seq"),
)

sessions = Table(
    "sessions",
    metadata,
    _seq(),
    Column("session_id", Name, nullable=False),
    Column("orchestrator", Name, nullable=False),
    Column("worker", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("cwd", Bytes),
    Column("model", Bytes),
    Column("provider", Bytes),
    Column("metadata", Bytes, nullable=False),
    Column("backend_ctx", Bytes),
    Column("created_at", Micros, nullable=False),
    Column("updated_at", Micros, nullable=False),
    Column("closed_at", Micros),
    Column("size", Integer, nullable=False),
    UniqueConstraint("session_id", "orchestrator", name="uq_sessions_name"),
    Index("ix_sessions_created_at", "created_at", "seq"),
    Index("ix_sessions_orchestrator", "orchestrator", "created_at", "seq"),
    Index("ix_sessions_worker", "worker", "created_at", "seq"),
    Index("ix_sessions_closed_at", "closed_at", "seq"),
)

waves = Table(
    "waves",
    metadata,
    _seq(),
    Column("wave_id", Name, nullable=False, unique=True),
    Column("goal", Bytes, nullable=False),
    Column("orchestrator", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("metadata", Bytes, nullable=False),
    Column("timeout_secs", Double),
    Column("created_at", Micros, nullable=False),
    Column("started_at", Micros),
    Column("closed_at", Micros),
    Column("reason", Bytes),
    Column("digest", Name, nullable=False),
    Column("size", Integer, nullable=False),
    Index("ix_waves_created_at", "created_at", "seq"),
    Index("ix_waves_orchestrator", "orchestrator", "created_at", "seq"),
    Index("ix_waves_status", "status", "created_at", "seq"),
    Index("ix_waves_closed_at", "closed_at", "seq"),
)

wave_tasks = Table(
    "wave_tasks",
    metadata,
    _seq(),
    Column("wave_id", Name, ForeignKey("waves.wave_id", ondelete="CASCADE"), nullable=False),
    Column("task_id", Name, nullable=False),
    Column("worker", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("goal", Bytes, nullable=False),
    Column("write_scope", Bytes, nullable=False),
    Column("dependencies", Bytes, nullable=False),
    Column("handoff_path", Bytes),
    Column("verify_cmd", Bytes),
    Column("timeout_secs", Double),
    Column("priority", BigInteger, nullable=False),
    Column("cwd", Bytes),
    Column("model", Bytes),
    Column("provider", Bytes),
    Column("verify_result", Name),
    Column("dispatch_ids", Bytes, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", Micros, nullable=False),
    Column("started_at", Micros),
    Column("completed_at", Micros),
    Column("error", Bytes),
    Column("size", Integer, nullable=False),
    Column("result", Bytes),
    UniqueConstraint("wave_id", "task_id", name="uq_wave_tasks_name"),
    Index("ix_wave_tasks_wave", "wave_id", "created_at", "seq"),
    Index("ix_wave_tasks_worker", "worker", "wave_id"),
)

wave_effects = Table(
    "wave_effects",
    metadata,
    _seq(),
    Column("meta_id", Name, nullable=False, unique=True),
    Column("wave_id", Name, nullable=False),
    Column("task_id", Name),
    Column("kind", Name, nullable=False),
    Column("channel", Name, nullable=False),
    Column("body", Bytes, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Name, primary_key=True),
    Column("holder", Name),
    Column("token", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
)
