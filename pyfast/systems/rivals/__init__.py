"""Systems from other papers, used as baselines in the papers behind pyfast's five systems. Each file implements
what is specific to one paper. `common` contains the code that several files share."""
