"""An agent that you talk to. It asks before it runs a command, and programs that ask something ask you.

    python examples/interactive.py

    you> greet me                    the agent proposes a command; Enter runs it, anything else is your objection
    you> !ls -l                      a command of your own, in the same shell
    you> bye                         or Ctrl-D

Ctrl-C stops the command that runs, and nothing else. Without a key, a scripted model takes the place of a real one. With
ANTHROPIC_API_KEY and the package `anthropic`, Claude answers (COVE_MODEL names the model).
"""

from __future__ import annotations

import os
from typing import Any

from cove import AwaitingInput, Chunk, Cove, Session

MAX_TURNS = 20
BASH = {
    "name": "bash",
    "description": "Runs bash source in a persistent shell, at a terminal that the user sees and answers.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def scripted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model that can do one thing."""
    last = messages[-1]["content"]
    if isinstance(last, str) and "greet" in last:
        command = 'read -p "Your name? " name; echo "Hello, $name." | tee greeting'
        return [{"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": command}}]
    if isinstance(last, list) and "Hello, " in last[0]["content"]:
        return [{"type": "text", "text": "I have kept that in the file greeting."}]
    return [{"type": "text", "text": "All I can do is greet you."}]


def claude(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    import anthropic

    model = os.environ.get("COVE_MODEL", "claude-sonnet-4-5")
    answer = anthropic.Anthropic().messages.create(model=model, max_tokens=4096, messages=messages, tools=[BASH])
    return [block.model_dump() for block in answer.content]


def run(session: Session, command: str) -> str:
    """Runs a command at a terminal. What it prints is shown, and what it asks is asked."""
    text = ""
    stream = session.stream(command, streams="tty", timeout=None)
    try:
        while (event := stream.next_event()) is not None:
            if isinstance(event, Chunk):
                print(event.text, end="", flush=True)
                text += event.text
            elif isinstance(event, AwaitingInput):
                session.input(input() + "\n")
    except KeyboardInterrupt:
        print("[stopped]")
        return f"{text}[the user stopped it]"
    assert stream.result is not None
    return f"{text}[exit code {stream.result.exit_code}]"


def answer(session: Session, messages: list[dict[str, Any]]) -> None:
    """Lets the model work until it has nothing more to run."""
    model = claude if os.environ.get("ANTHROPIC_API_KEY") else scripted
    for _ in range(MAX_TURNS):
        blocks = model(messages)
        messages.append({"role": "assistant", "content": blocks})
        results = []
        for block in blocks:
            if block["type"] == "text":
                print(f"agent> {block['text']}")
            elif block["type"] == "tool_use":
                command = block["input"]["command"]
                objection = input(f"agent> May I run this? {command}\n")
                output = run(session, command) if objection in ("", "y", "yes") else f"[the user did not allow it: {objection}]"
                results.append({"type": "tool_result", "tool_use_id": block["id"], "content": output})
        if not results:
            return
        messages.append({"role": "user", "content": results})


def main() -> None:
    messages: list[dict[str, Any]] = []
    lines = 0
    with Cove().session(labels={"example": "interactive"}) as session:
        while True:
            try:
                line = input("you> ").strip()
            except EOFError:
                break
            if line in ("bye", "exit"):
                break
            lines += 1
            if line.startswith("!"):
                run(session, line[1:])
            elif line:
                messages.append({"role": "user", "content": line})
                answer(session, messages)
    print(f"\ndone: {lines} lines")


if __name__ == "__main__":
    main()
