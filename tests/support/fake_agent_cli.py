"""Stands in for `claude` and `codex`: takes their arguments as strictly, and writes their formats, as the prompt says.

    python -I -S fake_agent_cli.py claude|codex ARGUMENT...

Its conversations are files `<session>.talk` in the working directory, so a resume works only where it began.
"""

import json
import os
import subprocess
import sys
import time

FLAGS_WITH_VALUE = {
    "claude": {"--output-format", "--resume", "--model", "--permission-mode"},
    "codex": {"--model", "--sandbox"},
}
FLAGS = {"claude": {"-p", "--verbose"}, "codex": {"--json", "--skip-git-repo-check"}}


def parse(kind, arguments):
    given, positional = {}, []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            positional += rest
            break
        if word in FLAGS_WITH_VALUE[kind]:
            given[word] = rest.pop(0)
        elif word in FLAGS[kind]:
            given[word] = True
        elif word.startswith("-") and word != "-":
            sys.exit(f"error: unknown option '{word}'")
        else:
            positional.append(word)
    if kind == "codex":
        if positional.pop(0) != "exec" or "--json" not in given:
            sys.exit("error: only exec --json is spoken here")
        if positional[0] == "resume":
            given["--resume"] = positional[1]
            positional = positional[2:]
        prompt = sys.stdin.read() if positional == ["-"] else positional[0]
    else:
        if given.get("--output-format") != "stream-json" or not {"-p", "--verbose"} <= set(given):
            sys.exit("Error: --output-format=stream-json requires -p and --verbose")
        prompt = positional[0] if positional else sys.stdin.read()
    return given, prompt


def say(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main():
    kind = sys.argv[1]
    given, prompt = parse(kind, sys.argv[2:])
    session = given.get("--resume", "0199a213-81c0-7800-8aa1-bbab2a035a53")
    talk = f"{session}.talk"
    if "--resume" in given and not os.path.exists(talk):
        sys.exit(f"No conversation found with session ID: {session}")
    with open(talk, "a") as file:
        file.write(prompt[:100] + "\n")
    with open(talk) as file:
        said = file.read().splitlines()
    claude = kind == "claude"
    if claude:
        say(type="system", subtype="init", session_id=session, cwd=os.getcwd(), model=given.get("--model"), tools=[])
    else:
        say(type="thread.started", thread_id=session)
        say(type="turn.started")
    word = prompt.split()[0]
    if word == "malformed":
        print("warning: this is no JSON")
        print("[1, 2]")
    elif word == "huge":
        text = "x" * int(prompt.split()[1])
        if claude:
            block = {"type": "tool_result", "content": text}
            say(type="user", message={"role": "user", "content": [block]}, session_id=session)
        else:
            item = {"id": "item_9", "type": "command_execution", "command": "cat", "aggregated_output": text}
            say(type="item.completed", item={**item, "exit_code": 0, "status": "completed"})
    elif word == "exit":
        sys.exit("e" * 3000 + " the last words")
    elif word == "silent":
        return
    elif word == "hang":
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open("grandchild", "w") as file:
            file.write(str(child.pid))
        os.rename("grandchild", "grandchild.pid")
        time.sleep(300)
    if claude:
        content = [
            {"type": "thinking", "thinking": "…"},
            {"type": "text", "text": "let me look"},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
        ]
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
        say(type="assistant", message=message, parent_tool_use_id=None, session_id=session)
    else:
        item = {"id": "item_0", "type": "command_execution", "command": "ls", "aggregated_output": ""}
        say(type="item.started", item={**item, "exit_code": None, "status": "in_progress"})
        say(type="item.completed", item={**item, "exit_code": 0, "status": "completed"})
        say(type="item.completed", item={"id": "item_1", "type": "agent_message", "text": "let me look"})
    if word == "error":
        if claude:
            say(
                type="result",
                subtype="error_during_execution",
                is_error=True,
                errors=["overloaded"],
                session_id=session,
            )
            sys.exit(1)
        say(type="error", message="Reconnecting... 1/5")
        say(type="turn.failed", error={"message": "overloaded"})
        sys.exit(1)
    answer = json.dumps({"said": said, "size": len(prompt), "given": {k: v for k, v in given.items() if v is not True}})
    if claude:
        say(type="result", subtype="success", is_error=False, result=answer, session_id=session, num_turns=1)
    else:
        say(type="error", message="Reconnecting... 1/5")
        say(type="item.completed", item={"id": "item_2", "type": "agent_message", "text": answer})
        say(type="turn.completed", usage={"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1})


main()
