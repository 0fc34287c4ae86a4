"""Stands in for an agent of the Agent Client Protocol, without its library: JSON-RPC on stdin and stdout.

    python -I -S fake_acp_agent.py [--no-load]

What it does is what its prompt says. What it was asked goes to `asked.jsonl` in its working directory.
"""

import json
import os
import subprocess
import sys

SESSION = "sess_abc123"


def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message = json.loads(line)
    with open("asked.jsonl", "a") as file:
        file.write(line)
    return message


def update(session_update, **more):
    write(
        {
            "method": "session/update",
            "params": {"sessionId": SESSION, "update": {"sessionUpdate": session_update, **more}},
        }
    )


def say(text):
    update("agent_message_chunk", content={"type": "text", "text": text})


def answer_prompt(number, prompt):
    word = prompt.split()[0]
    if word == "hang":
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open("grandchild", "w") as file:
            file.write(str(child.pid))
        os.rename("grandchild", "grandchild.pid")
        while read().get("method") != "session/cancel":
            pass
        return {"stopReason": "cancelled"}
    if word == "die":
        sys.exit("the last words")
    if word == "noise":
        print("a line of no JSON")
        print("5")
        update("agent_message_chunk", content={"type": "text", "text": "x" * 300_000})
    if word == "refuse":
        return {"stopReason": "refusal"}
    if word == "ask":
        update("tool_call", toolCallId="call_1", title="Delete it all", kind="delete", status="pending")
        options = [
            {"optionId": "yes-always", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        params = {"sessionId": SESSION, "toolCall": {"toolCallId": "call_1", "title": "Delete it all"}}
        write({"id": 7, "method": "session/request_permission", "params": {**params, "options": options}})
        outcome = read()["result"]["outcome"]
        say(outcome.get("optionId", outcome["outcome"]))
        return {"stopReason": "end_turn"}
    say("you said ")
    say(prompt[:100])
    return {"stopReason": "end_turn"}


while True:
    asked = read()
    method, params, number = asked["method"], asked.get("params", {}), asked.get("id")
    if method == "initialize":
        capabilities = {"loadSession": "--no-load" not in sys.argv}
        result = {"protocolVersion": 1, "agentCapabilities": capabilities, "authMethods": []}
    elif method == "session/new":
        if "--no-login" in sys.argv:
            write({"id": number, "error": {"code": -32000, "message": "Authentication required"}})
            continue
        result = {"sessionId": SESSION}
    elif method == "session/load":
        say("what was said before")
        result = None
    elif method == "session/set_mode":
        result = {}
    elif method == "session/prompt":
        result = answer_prompt(number, params["prompt"][0]["text"])
    else:
        write({"id": number, "error": {"code": -32601, "message": f"Method not found: {method}"}})
        continue
    write({"id": number, "result": result})
