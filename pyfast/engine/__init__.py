"""The engine: a coroutine per question, a batch at every `await`, and a journal."""

from pyfast.engine.budget import Budget
from pyfast.engine.configuration import Configuration, configuration, known_of
from pyfast.engine.context import Context, Past
from pyfast.engine.folder import RunFolder, check_run, set_aside
from pyfast.engine.job import Job, dedicate_process, work_on
from pyfast.engine.ledger import Ledger
from pyfast.engine.prompt import Prompt, Sampling, plain
from pyfast.engine.questions import Question, check_questions, read_questions
from pyfast.engine.records import Answer, Record
from pyfast.engine.run import Ask, Summary, answer_all
from pyfast.engine.status import Status, read_status

__all__ = [
    "Answer",
    "Ask",
    "Budget",
    "Configuration",
    "Context",
    "Job",
    "Ledger",
    "Past",
    "Prompt",
    "Question",
    "Record",
    "RunFolder",
    "Sampling",
    "Status",
    "Summary",
    "answer_all",
    "check_questions",
    "check_run",
    "configuration",
    "dedicate_process",
    "known_of",
    "plain",
    "read_questions",
    "read_status",
    "set_aside",
    "work_on",
]
