"""The prompts of SubQRAG."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from pyfast.engine import Prompt
from pyfast.knowledge.fact_retrieval import MAX_TRIPLES
from pyfast.systems.prompts import INSUFFICIENT

_Text = Annotated[str, Field(max_length=200)]


class SubQuestionsFields(BaseModel):
    """An ordered chain of sub-questions; `#1` stands for the answer of the first."""

    questions: list[Annotated[str, Field(max_length=300)]] = Field(max_length=6)


class RewrittenFields(BaseModel):
    """A self-contained question."""

    question: str = Field(max_length=300)


class FromFactsFields(BaseModel):
    """Answers from facts, and the numbers of these facts; no answers if the facts have none."""

    answers: list[_Text] = Field(max_length=MAX_TRIPLES)
    used: list[int] = Field(default=[], max_length=20)


class JudgedFactsFields(BaseModel):
    """Whether the facts suffice, before the answers."""

    sufficient: bool
    answers: list[_Text] = Field(max_length=MAX_TRIPLES)
    used: list[int] = Field(default=[], max_length=20)


class FromDocumentsFields(BaseModel):
    """Answers from passages, and the numbers of these passages; none if the passages have none."""

    answers: list[_Text] = Field(max_length=50)
    used: list[int] = Field(default=[], max_length=20)


class FinalFields(BaseModel):
    """The final answer."""

    answer: str


SUB_QUESTIONS = Prompt(
    name="sub_questions",
    system="You split a question into simple ones that are asked one after the other. Reply in JSON.",
    user="""\
Write the simple questions, in the order in which they must be answered; each asks for one fact.
Write at most 6, each of at most 300 characters.
#1 stands for the answer of the first, #2 for that of the second. A question that is simple already stays alone.

Question: What is the capital of the country where the author of Pippi Longstocking was born?
{"questions": ["Who is the author of Pippi Longstocking?", "In which country was #1 born?", "What is the \
capital of #2?"]}

Question: Who is older, the author of Emil and the Detectives or its illustrator?
{"questions": ["Who is the author of Emil and the Detectives?", "Who is the illustrator of Emil and the \
Detectives?", "When was #1 born?", "When was #2 born?"]}

Question: Do the Elbe and the Loire flow through the same country?
{"questions": ["Through which countries does the Elbe flow?", "Through which countries does the Loire flow?"]}

Question: In which year was the University of Oslo founded?
{"questions": ["In which year was the University of Oslo founded?"]}

Question: $question""",
    answer=SubQuestionsFields,
    max_tokens=400,
    role="plan",
)

REWRITE = Prompt(
    name="rewrite",
    system=(
        "You make a question stand on its own: #1, #2 and words such as 'he' or 'that film' become the names "
        "that were found. Its meaning stays. Reply in JSON with the field question, of at most 300 "
        "characters."
    ),
    user="Found before:\n$earlier\nQuestion to make stand on its own: $question",
    answer=RewrittenFields,
    max_tokens=160,
    role="plan",
)

_FACTS = (
    "You answer a question from numbered facts alone, written: head | relation | tail. Reply in JSON: {fields}"
    "answers, the names or values that answer the question, and no others; used, the numbers of the facts that"
    f" told it, at most 20. There are at most {MAX_TRIPLES} answers, of at most 200 characters each. Where the"
    " facts do not tell, answers is an empty list: other facts will be looked for.\n\n"
    "Facts:\n1. Astrid Lindgren | was born in | Vimmerby\n2. Astrid Lindgren | wrote | Pippi Longstocking\n"
    '\nQuestion: Where was Astrid Lindgren born?\n{{{yes}"answers": ["Vimmerby"], "used": [1]}}\n'
    '\nQuestion: In which year did Astrid Lindgren die?\n{{{no}"answers": [], "used": []}}'
)

FROM_FACTS = Prompt(
    name="from_facts",
    system=_FACTS.format(fields="", yes="", no=""),
    user="Facts:\n$facts\n\nQuestion: $question",
    answer=FromFactsFields,
    max_tokens=800,
    role="extract",
    cut_is_final=True,
)

JUDGE_FACTS = Prompt(
    name="judge_facts",
    system=_FACTS.format(
        fields="sufficient, whether the facts answer the question; ",
        yes='"sufficient": true, ',
        no='"sufficient": false, ',
    ),
    user=FROM_FACTS.user,
    answer=JudgedFactsFields,
    max_tokens=FROM_FACTS.max_tokens,
    role=FROM_FACTS.role,
    cut_is_final=True,
)

FROM_DOCUMENTS = Prompt(
    name="from_documents",
    system=(
        "You answer a question from numbered passages alone. Reply in JSON: answers, the names or values that"
        " answer the question, and no others, at most 50, of at most 200 characters each; used, the numbers of the"
        ' passages that told it, at most 20. Where the passages do not tell, the reply is {"answers": [], "used":'
        " []}."
    ),
    user="Passages:\n$context\n\nQuestion: $question",
    answer=FromDocumentsFields,
    max_tokens=400,
    role="extract",
)

FROM_MEMORY = Prompt(
    name="from_memory",
    system=(
        "You answer a question from a memory of facts that were found for it step by step, written: head | "
        "relation | tail. Reply in JSON with the field answer: only the name, number or short phrase asked "
        "for, no sentence; several separated by semicolons. If the memory does not tell, the answer is "
        f"'{INSUFFICIENT}'."
    ),
    user="Memory:\n$memory\n\nQuestion: $question",
    answer=FinalFields,
    max_tokens=800,
    role="answer",
    cut_is_final=True,
)
