"""LangChain's ChatOpenAI, unchanged. It is tested where it is installed: pip install langchain-openai."""

import pytest
from http_server import serving

import pyfast

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")


async def test_chat_openai_answers_streams_and_converses(small: pyfast.Index) -> None:
    (record,) = pyfast.answer(["Who discovered Titan?"], index=small, llm="instant", system="n2n").records
    async with serving(small, "instant", keys=["secret"]) as served:
        model = langchain_openai.ChatOpenAI(model="n2n", base_url=served.url + "/v1", api_key="secret")
        said = await model.ainvoke("Who discovered Titan?")
        assert said.content == record.answer
        assert said.usage_metadata["input_tokens"] == record.usage.prompt_tokens
        pieces = [piece async for piece in model.astream("Who discovered Titan?")]
        assert "".join(piece.content for piece in pieces) == record.answer
        turns = [
            ("system", "Be brief."),
            ("human", "Who discovered Titan?"),
            ("ai", "Huygens"),
            ("human", "When?"),
        ]
        assert (await model.ainvoke(turns)).content
        assert [one.content for one in await model.abatch(["Who discovered Titan?"] * 3)] == [record.answer] * 3
