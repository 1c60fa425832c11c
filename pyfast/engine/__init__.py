"""The engine. It runs a coroutine for each question, collects the calls of all questions into batches, and
stores the LLM's replies in a journal.
"""

from pyfast.engine.budget import Budget, Remaining
from pyfast.engine.configuration import Configuration, configuration, recorded_value
from pyfast.engine.context import Context, Past, Runtime
from pyfast.engine.events import Event, OnEvent, OnStep, Step, Watch
from pyfast.engine.job import Job, SessionResult, dedicate_process, work_on
from pyfast.engine.journal.ledger import Ledger
from pyfast.engine.journal.prompt_store import LLMCall
from pyfast.engine.outages import Waiting
from pyfast.engine.prompt import Prompt
from pyfast.engine.prompt_overrides import PromptOverrides, read_prompts
from pyfast.engine.questions import (
    Question,
    Questions,
    questions_from,
    questions_in,
    read_questions,
    write_questions,
)
from pyfast.engine.record import Answer, Evidence, Record, State, Usage
from pyfast.engine.run import Ask, Summary, answer_all, answer_question
from pyfast.engine.run_folder import RunFolder, check_run, set_aside
from pyfast.engine.status import Status, read_status
from pyfast.llm.control_tokens import plain
from pyfast.utils.options import Sampling

__all__ = [
    "Answer",
    "Ask",
    "Budget",
    "Configuration",
    "Context",
    "Event",
    "Evidence",
    "Job",
    "LLMCall",
    "Ledger",
    "OnEvent",
    "OnStep",
    "Past",
    "Prompt",
    "PromptOverrides",
    "Question",
    "Questions",
    "Record",
    "Remaining",
    "RunFolder",
    "Runtime",
    "Sampling",
    "SessionResult",
    "State",
    "Status",
    "Step",
    "Summary",
    "Usage",
    "Waiting",
    "Watch",
    "answer_all",
    "answer_question",
    "check_run",
    "configuration",
    "dedicate_process",
    "plain",
    "questions_from",
    "questions_in",
    "read_prompts",
    "read_questions",
    "read_status",
    "recorded_value",
    "set_aside",
    "work_on",
    "write_questions",
]
