"""Systems from other papers for questions over tables."""
