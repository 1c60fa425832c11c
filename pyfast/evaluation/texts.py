"""Metrics that compare long answers with reference texts. Other libraries compute these metrics."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pyfast.engine import Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import Metric, Values
from pyfast.utils.extras import explained

Questions = Sequence[tuple[Record, Gold]]


def rouge_l(questions: Questions, /) -> Sequence[Values | None]:
    """Compute ROUGE-L by `rouge-score`, without stemming: F1 of the longest common subsequence. The best score
    over the gold answers counts.
    """
    scorer = _library("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    return [
        {"rouge_l": scorer.score_multi(gold.answers, record.answer)["rougeL"].fmeasure}
        if record.answer is not None and gold.answers
        else ({"rouge_l": 0.0} if gold.has_answer else None)
        for record, gold in questions
    ]


def bertscore(questions: Questions, /) -> Sequence[Values | None]:
    """Compute BERTScore's F1. The best score over the gold answers counts. The model is bert-score's default
    for English, from the cache of the Hugging Face hub.
    """
    return bertscore_of(None)(questions)


def bertscore_of(model: str | Path | None) -> Metric:
    """Make the metric BERTScore with another model: its folder, or a name that bert-score accepts.

    Example:
        >>> from pyfast.evaluation.texts import bertscore_of
        >>> metric = bertscore_of("MODEL")
    """

    def metric(questions: Questions, /) -> Sequence[Values | None]:
        library = _library("bert_score")
        scored = [(i, r.answer, g.answers) for i, (r, g) in enumerate(questions) if r.answer and g.answers]
        values = [0.0] * len(questions)
        if scored:
            which: dict[str, Any] = {"lang": "en"}
            if model is not None:
                which = {"model_type": str(model), **_layers(model)}
            _, _, f1 = library.score([text for _, text, _ in scored], [list(a) for *_, a in scored], **which)
            for (place, _, _), value in zip(scored, f1.tolist(), strict=True):
                values[place] = value
        return [
            {"bertscore": value} if gold.has_answer else None
            for (_, gold), value in zip(questions, values, strict=True)
        ]

    return metric


def _layers(model: str | Path) -> dict[str, int]:
    """Return the argument of bert-score that chooses the layer of the model. For a folder, it is the last
    layer. For a name, the result is empty: bert-score itself knows the best layer of the models whose names
    it accepts.
    """
    if not Path(model).is_dir():
        return {}
    config = _library("transformers").AutoConfig.from_pretrained(str(model), trust_remote_code=False)
    return {"num_layers": config.num_hidden_layers}


@explained()
def _library(name: str) -> Any:
    return import_module(name)
