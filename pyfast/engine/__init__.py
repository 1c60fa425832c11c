"""The engine: a coroutine per question, and a batch at every `await`."""

from pyfast.engine.context import Context
from pyfast.engine.prompt import Prompt
from pyfast.engine.questions import Question, check_questions, read_questions
from pyfast.engine.records import Answer, Evidence, Record
from pyfast.engine.run import Ask, Summary, answer_all

__all__ = [
    "Answer",
    "Ask",
    "Context",
    "Evidence",
    "Prompt",
    "Question",
    "Record",
    "Summary",
    "answer_all",
    "check_questions",
    "read_questions",
]
