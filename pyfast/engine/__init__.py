"""The engine, which runs a coroutine for each question, collects the calls of all questions into batches, and
stores the LLM's replies in a journal.
"""

from pyfast.engine.budget import Budget as Budget
from pyfast.engine.budget import Remaining as Remaining
from pyfast.engine.configuration import Configuration as Configuration
from pyfast.engine.configuration import recorded_value as recorded_value
from pyfast.engine.context import Ask as Ask
from pyfast.engine.context import Context as Context
from pyfast.engine.context import Past as Past
from pyfast.engine.context import Runtime as Runtime
from pyfast.engine.events import Event as Event
from pyfast.engine.events import OnEvent as OnEvent
from pyfast.engine.events import OnStep as OnStep
from pyfast.engine.events import Step as Step
from pyfast.engine.events import Watch as Watch
from pyfast.engine.job import Job as Job
from pyfast.engine.job import dedicate_process as dedicate_process
from pyfast.engine.journal.ledger import Ledger as Ledger
from pyfast.engine.journal.prompt_store import LLMCall as LLMCall
from pyfast.engine.outages import Waiting as Waiting
from pyfast.engine.prompt import Prompt as Prompt
from pyfast.engine.prompt import PromptOverrides as PromptOverrides
from pyfast.engine.prompt import read_prompts as read_prompts
from pyfast.engine.questions import Question as Question
from pyfast.engine.questions import Questions as Questions
from pyfast.engine.questions import questions_from as questions_from
from pyfast.engine.questions import questions_in as questions_in
from pyfast.engine.questions import read_questions as read_questions
from pyfast.engine.questions import write_questions as write_questions
from pyfast.engine.record import Answer as Answer
from pyfast.engine.record import Evidence as Evidence
from pyfast.engine.record import Record as Record
from pyfast.engine.record import Usage as Usage
from pyfast.engine.run import SessionResult as SessionResult
from pyfast.engine.run import Summary as Summary
from pyfast.engine.run import answer_question as answer_question
from pyfast.engine.run import work_on as work_on
from pyfast.engine.run_folder import RunFolder as RunFolder
from pyfast.engine.run_folder import check_run as check_run
from pyfast.engine.run_folder import set_aside as set_aside
from pyfast.engine.status import Status as Status
from pyfast.engine.status import read_status as read_status
from pyfast.llm.control_tokens import plain as plain
from pyfast.utils.options import Sampling as Sampling
