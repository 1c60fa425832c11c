"""Systems from other papers that check what the LLM says, and search when the LLM may be wrong."""
