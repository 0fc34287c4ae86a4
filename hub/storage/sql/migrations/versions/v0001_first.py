"""The first schema."""

import sqlalchemy as sa
from alembic import op

from hub.storage.sql.types import Key, Name

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "agents",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("identity", Name(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("described_at", sa.BigInteger()),
        sa.Column("capabilities", sa.LargeBinary(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("identity"),
    )
    op.create_index("ix_agents_last_seen", "agents", ["last_seen"])
    op.create_index("ix_agents_registered_at", "agents", ["registered_at", "seq"])
    op.create_table(
        "dead_letters",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("dead_id", Name(), nullable=False),
        sa.Column("reason", Name(), nullable=False),
        sa.Column("detail", sa.LargeBinary(), nullable=False),
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("sender", sa.LargeBinary()),
        sa.Column("envelope_id", sa.LargeBinary()),
        sa.Column("headers", sa.LargeBinary(), nullable=False),
        sa.Column("data_size", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("replayed_at", sa.BigInteger()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("dead_id"),
    )
    op.create_index("ix_dead_letters_reason", "dead_letters", ["reason", "received_at", "seq"])
    op.create_index("ix_dead_letters_received_at", "dead_letters", ["received_at", "seq"])
    op.create_table(
        "envelopes",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("id", Name(), nullable=False),
        sa.Column("sender", Name(), nullable=False),
        sa.Column("destination", Name(), nullable=False),
        sa.Column("channel", Name(), nullable=False),
        sa.Column("recipient", Name()),
        sa.Column("kind", Name(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("is_open", sa.SmallInteger(), nullable=False),
        sa.Column("is_error", sa.SmallInteger(), nullable=False),
        sa.Column("reply_to", Name()),
        sa.Column("reply_text", sa.LargeBinary()),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id", "sender", "destination", name="uq_envelopes_name"),
    )
    op.create_index("ix_envelopes_channel", "envelopes", ["channel", "stored_at", "seq"])
    op.create_index(
        "ix_envelopes_broadcast",
        "envelopes",
        ["channel", "stored_at", "seq"],
        sqlite_where=sa.text("recipient IS NULL"),
        postgresql_where=sa.text("recipient IS NULL"),
    )
    op.create_index(
        "ix_envelopes_error",
        "envelopes",
        ["stored_at"],
        sqlite_where=sa.text("is_error = 1"),
        postgresql_where=sa.text("is_error = 1"),
    )
    op.create_index("ix_envelopes_kind", "envelopes", ["kind", "stored_at", "seq", "size"])
    op.create_index(
        "ix_envelopes_open",
        "envelopes",
        ["recipient", "stored_at", "seq"],
        sqlite_where=sa.text("is_open = 1"),
        postgresql_where=sa.text("is_open = 1"),
    )
    op.create_index("ix_envelopes_recipient", "envelopes", ["recipient", "stored_at", "seq"])
    op.create_index(
        "ix_envelopes_reply_to",
        "envelopes",
        ["reply_to", "stored_at", "seq"],
        sqlite_where=sa.text("reply_to IS NOT NULL"),
        postgresql_where=sa.text("reply_to IS NOT NULL"),
    )
    op.create_index("ix_envelopes_sender", "envelopes", ["sender", "stored_at", "seq"])
    op.create_index("ix_envelopes_stored_at", "envelopes", ["stored_at", "seq"])
    op.create_table(
        "hub_meta",
        sa.Column("name", Name(), nullable=False),
        sa.Column("value", Name(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "leases",
        sa.Column("name", Name(), nullable=False),
        sa.Column("holder", Name()),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "positions",
        sa.Column("reader", Name(), nullable=False),
        sa.Column("stream", Name(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reader", "stream"),
    )
    op.create_table(
        "sessions",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("session_id", Name(), nullable=False),
        sa.Column("orchestrator", Name(), nullable=False),
        sa.Column("worker", Name(), nullable=False),
        sa.Column("status", Name(), nullable=False),
        sa.Column("cwd", sa.LargeBinary()),
        sa.Column("model", sa.LargeBinary()),
        sa.Column("provider", sa.LargeBinary()),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("backend_ctx", sa.LargeBinary()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("session_id", "orchestrator", name="uq_sessions_name"),
    )
    op.create_index("ix_sessions_closed_at", "sessions", ["closed_at", "seq"])
    op.create_index("ix_sessions_created_at", "sessions", ["created_at", "seq"])
    op.create_index("ix_sessions_orchestrator", "sessions", ["orchestrator", "created_at", "seq"])
    op.create_index("ix_sessions_worker", "sessions", ["worker", "created_at", "seq"])
    op.create_table(
        "wave_effects",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("meta_id", Name(), nullable=False),
        sa.Column("wave_id", Name(), nullable=False),
        sa.Column("task_id", Name()),
        sa.Column("kind", Name(), nullable=False),
        sa.Column("channel", Name(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("meta_id"),
    )
    op.create_table(
        "waves",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("wave_id", Name(), nullable=False),
        sa.Column("goal", sa.LargeBinary(), nullable=False),
        sa.Column("orchestrator", Name(), nullable=False),
        sa.Column("status", Name(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("timeout_secs", sa.Double()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("closed_at", sa.BigInteger()),
        sa.Column("reason", sa.LargeBinary()),
        sa.Column("digest", Name(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("wave_id"),
    )
    op.create_index("ix_waves_closed_at", "waves", ["closed_at", "seq"])
    op.create_index("ix_waves_created_at", "waves", ["created_at", "seq"])
    op.create_index("ix_waves_orchestrator", "waves", ["orchestrator", "created_at", "seq"])
    op.create_index("ix_waves_status", "waves", ["status", "created_at", "seq"])
    op.create_table(
        "agent_capabilities",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("identity", Name(), nullable=False),
        sa.ForeignKeyConstraint(["identity"], ["agents.identity"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("digest", "identity"),
    )
    op.create_index("ix_agent_capabilities_identity", "agent_capabilities", ["identity"])
    op.create_table(
        "wave_tasks",
        sa.Column("seq", Key, autoincrement=True),
        sa.Column("wave_id", Name(), nullable=False),
        sa.Column("task_id", Name(), nullable=False),
        sa.Column("worker", Name(), nullable=False),
        sa.Column("status", Name(), nullable=False),
        sa.Column("goal", sa.LargeBinary(), nullable=False),
        sa.Column("write_scope", sa.LargeBinary(), nullable=False),
        sa.Column("dependencies", sa.LargeBinary(), nullable=False),
        sa.Column("handoff_path", sa.LargeBinary()),
        sa.Column("verify_cmd", sa.LargeBinary()),
        sa.Column("timeout_secs", sa.Double()),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("cwd", sa.LargeBinary()),
        sa.Column("model", sa.LargeBinary()),
        sa.Column("provider", sa.LargeBinary()),
        sa.Column("verify_result", Name()),
        sa.Column("dispatch_ids", sa.LargeBinary(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("completed_at", sa.BigInteger()),
        sa.Column("error", sa.LargeBinary()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("result", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["wave_id"], ["waves.wave_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("wave_id", "task_id", name="uq_wave_tasks_name"),
    )
    op.create_index("ix_wave_tasks_wave", "wave_tasks", ["wave_id", "created_at", "seq"])
    op.create_index("ix_wave_tasks_worker", "wave_tasks", ["worker", "wave_id"])
