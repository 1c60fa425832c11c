"""The engine: a coroutine per question, and a batch at every `await`."""

from pyfast.engine.context import Context
from pyfast.engine.prompt import Prompt
from pyfast.engine.questions import Question, read_questions
from pyfast.engine.records import Answer, Record
from pyfast.engine.run import Summary, answer_all

__all__ = ["Answer", "Context", "Prompt", "Question", "Record", "Summary", "answer_all", "read_questions"]
