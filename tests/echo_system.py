"""A system of a user's own module, which answers with the question."""

from pyfast.engine import Answer, Context, Question
from pyfast.systems import Settings, System


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    return Answer(question.text)


SYSTEM = System("echo", answer, Settings, (), needs_index=False)
