"""`pyfast prompts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyfast.commands.terminal import lines, plain


def prompts(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    id: Annotated[str, typer.Argument(help="The id of a question that has ended.")],
) -> None:
    """Show the prompts of one question, and the LLM's replies."""
    from pyfast.api.run import Run

    for number, call in enumerate(Run(run).prompts(id), start=1):
        print(f"== {number}: {plain(call.prompt) or 'a prompt'}, asked of {plain(call.role)}")
        if call.messages is None:
            print("(the prompt was not kept)")
        elif not call.messages:
            print("(the prompt was embeddings)")
        for message in call.messages or ():
            print(f"-- {message.role}\n{lines(message.content)}")
        if call.completion is None:
            print(f"-- failed\n{plain(call.error)}")
        else:
            print(f"-- said ({call.completion.finish_reason})\n{lines(call.completion.text)}")
