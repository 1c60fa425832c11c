"""Systems of other papers for questions over tables."""
