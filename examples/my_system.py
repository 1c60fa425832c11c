"""A system of your own: ask, look up what was answered, and ask again with that.

PYTHONPATH=examples pyfast check my_system:SYSTEM
PYTHONPATH=examples pyfast answer examples/questions.jsonl --index IDX --run RUN --system my_system:SYSTEM
"""

from pydantic import BaseModel, Field

from pyfast.engine import Answer, Context, Prompt, Question
from pyfast.systems import Settings, System


class MySettings(Settings):
    k: int = Field(default=5, ge=1, le=100, description="Passages for each of the two searches.")


class Reply(BaseModel):
    answer: str = Field(max_length=200)


READ = Prompt(
    name="read",
    system="You answer from the evidence alone. Reply in JSON with the field answer: a name, a number or a date.",
    user="Evidence:\n$evidence\n\nQuestion: $question",
    answer=Reply,
    max_tokens=100,
)


async def answer(question: Question, ctx: Context, settings: MySettings) -> Answer:
    """Two searches: the second also for what the first led to."""
    first = await ctx.retrieve(question.text, settings.k)
    guess = await ctx.generate(READ, evidence=await ctx.narrative(first, READ), question=question.text)
    both = await ctx.retrieve_all((question.text, guess.answer), settings.k, (first,))
    reply = await ctx.generate(READ, evidence=await ctx.narrative(both, READ), question=question.text)
    return Answer(reply.answer.strip() or None, ctx.evidence(both), {"guess": guess.answer})


SYSTEM = System("my_system", answer, MySettings, (READ,))
