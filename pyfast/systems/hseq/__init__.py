"""HSEQ: one policy over text, tables and knowledge graphs."""
