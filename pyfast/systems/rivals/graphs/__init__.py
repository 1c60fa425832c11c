"""Systems from other papers that search a knowledge graph for entities, relations and their source texts."""
