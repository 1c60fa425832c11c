"""Let a language model judge a run's answers, or compare those of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyfast.evaluation.judge as judging
from pyfast.api.jobs import carry_out_with
from pyfast.api.models import GivenLLM
from pyfast.api.run import GoldLike, Run, gold_of
from pyfast.engine import Job, Questions, Watch
from pyfast.engine.events import UNWATCHED
from pyfast.evaluation.judge import JUDGE, Row
from pyfast.systems.system import source_digest
from pyfast.utils.options import OF_EVERY_RUN, RUN_DEFAULTS, RunOptions


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of judging two runs."""

    run: Run
    """The run in which the judge compared the answers, with one question per pair of answers"""
    rows: list[Row]
    """The result for each dimension, such as comprehensiveness. Empty if the judge's run was stopped early"""
    failed: int
    """The number of pairs that could not be judged"""


def judge_runs(
    run_a: str | Path,
    run_b: str | Path,
    *,
    run: str | Path,
    ties: bool = True,
    llm: GivenLLM = "embedded",
    llm_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    options: RunOptions = RUN_DEFAULTS,
    watch: Watch = UNWATCHED,
) -> Judgement:
    """Let a language model compare the answers of two runs. It sees each pair of answers in both orders.

    Args:
        run_a: The folder of a finished run.
        run_b: The folder of another run on the same questions.
        run: The folder of the judge's run. A stopped run resumes if you call the function again with the same
            arguments.
        ties: Whether the judge may say that two answers are equally good. The MTQA paper does not allow this. Even
            without `ties`, a pair counts as a tie if the judge's choice depends on the order of the two answers,
            or if they are identical.
        llm: The model that judges, with the role `judge`. `llm` and all later arguments are as in
            `pyfast.answer`. The supported `options` are `outage`, `sync`, `keep_prompts`, `restart` and
            `retry_failed`; others are rejected.

    Returns:
        For each dimension, how often each run wins, and the win rate of `run_a` with its bootstrap interval. A tie
        counts as half a win.

    Raises:
        InputError: The runs answer different questions, a run is not finished, or an argument is not valid for
            `pyfast.answer`.

    Example:
        >>> from pyfast.api.judgement import judge_runs
        >>> judgement = judge_runs("RUN_A", "RUN_B", run="JUDGED", llm="openai:qwen3-8b@http://127.0.0.1:8000")
        >>> print(judgement.rows[-1].dimension, judgement.rows[-1].rate)
    """
    options = options.only("judge_runs", *OF_EVERY_RUN)
    pairs = judging.open_pairs(Path(run_a), Path(run_b))
    job = partial(
        Job,
        questions=Questions(lambda: iter(pairs), pairs.count, pairs.digest()),
        system="judge",
        system_code=source_digest(judging.judge),
        ask=partial(judging.judge, ties=ties),
        settings={} if ties else {"ties": False},
        prompts=(JUDGE if ties else judging.JUDGE_WITHOUT_TIES,),
        places={"run_a": str(run_a), "run_b": str(run_b)},
    )
    done = carry_out_with(job, run, "judge", JUDGE.role, llm, llm_options, concurrency, budget, options, watch)
    left = done.status.questions - done.status.ended
    rows, failed = ([], 0) if left else judging.win_rates(Path(run))
    return Judgement(done, rows, failed)


def judge_answers(
    run: str | Path,
    gold: GoldLike | None = None,
    *,
    judged: str | Path,
    llm: GivenLLM = "embedded",
    llm_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    budget: Mapping[str, Any] | None = None,
    options: RunOptions = RUN_DEFAULTS,
    watch: Watch = UNWATCHED,
) -> Run:
    """Let a language model judge each answer of a run: whether it agrees with the gold answers, whether its
    evidence supports it, and which passages do. `pyfast.evaluate(run, judged=...)` shows the figures.

    Args:
        run: The folder of a finished run.
        gold: As in `pyfast.evaluate`. A question without gold answers is judged by its evidence alone.
        judged: The folder of the judge's run. A stopped run resumes if you call the function again with the same
            arguments.
        llm: The model that judges, with the role `judge`. `llm` and all later arguments are as in `judge_runs`.

    Returns:
        The judge's run. Its traces contain the verdict on each answer and the reason for it, and its method
        `prompts` returns what the judge read.

    Raises:
        InputError: The run is not finished, the gold cannot be read, or an argument is not valid for
            `pyfast.answer`.

    Example:
        >>> import pyfast
        >>> from pyfast.api.judgement import judge_answers
        >>> judge_answers("RUN", judged="RUN-judged", llm="openai:qwen3-8b@http://127.0.0.1:8000")
        >>> report = pyfast.evaluate("RUN", judged="RUN-judged")
        >>> print(report.rows[0]["judged_correct"].value)
    """
    options = options.only("judge_answers", *OF_EVERY_RUN)
    given = judging.open_answers(Path(run), gold_of(run, gold))
    job = partial(
        Job,
        questions=Questions(lambda: iter(given), given.pairs.count, given.digest()),
        system="judge_answers",
        system_code=source_digest(judging.judge_answer),
        ask=judging.judge_answer,
        prompts=tuple(judging.PROMPTS.values()),
        places={"run": str(run)},
    )
    return carry_out_with(job, judged, "judge", JUDGE.role, llm, llm_options, concurrency, budget, options, watch)
