"""Systems of other papers that check what the LLM says, and search where it may be wrong."""
