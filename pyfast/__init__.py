"""pyfast: multi-hop question answering over text, tables and knowledge graphs, as fast as the LLM underneath."""

__version__ = "0.1.0"
