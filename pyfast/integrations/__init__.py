"""Use pyfast inside LangChain (`langchain`) and LlamaIndex (`llamaindex`). Each of these two modules needs
the extra with its name. No other part of pyfast imports them.
"""
