"""An LLM in the process that takes its time, and writes each call into a file: `slow_llm:open_slow`."""

import asyncio
import os
from typing import Any

from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant

LOG = "PYFAST_TEST_CALLS"
SECONDS = 0.3


class Slow(Instant):
    """The instant LLM, a third of a second later."""

    async def complete(self, request: Request) -> Completion:
        with open(os.environ[LOG], "a") as log:
            log.write(f"{request.digest().hex()}\n")
        await asyncio.sleep(SECONDS)
        return await super().complete(request)


def open_slow(**options: Any) -> Slow:
    return Slow(**options)
