"""Tasks: an admin's cancel of somebody's task."""

from typing import Final

from hub.api.authorisation import Caller
from hub.api.operation import Answer, Context, Operation, audit_members
from hub.api.params import Params, named
from hub.protocol import make, names, subjects

CHANNEL: Final = "direct"  # what the worker sees as the channel of a direct message that names none


class CancelParams(Params):
    """Of `task.cancel`: which worker, which task, and whose it is: tasks are named by `(from, id)`."""

    worker: str
    task_id: str
    sender: str


async def cancel(context: Context, _caller: Caller, params: CancelParams) -> Answer:
    """Send the worker a cancel in the hub's own voice, on behalf of the task's sender (contract §7).

    Sent is not cancelled: the task's own result tells how it ended. A second one does no harm.
    """
    envelope = make(
        sender=names.HUB_IDENTITY,
        to=named(names.agent_identity, params.worker, "worker"),
        channel=CHANNEL,
        kind="control",
        payload={
            "action": "cancel",
            "task_id": named(names.message_id, params.task_id, "task_id"),
            "from": named(names.agent_identity, params.sender, "from"),
        },
    )
    await context.ingress.send(
        subjects.publish(names.HUB_IDENTITY, CHANNEL), envelope.body, message_id=names.new_publish_id()
    )
    return {"sent": True}


OPERATIONS: Final = (
    Operation("task.cancel", CancelParams, cancel, audited=audit_members("worker", "task_id", "sender")),
)
