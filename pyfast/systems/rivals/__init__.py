"""Systems of other papers, with which the papers of pyfast's five systems compare theirs. A file has what its
paper adds. `common` has what several files share."""
