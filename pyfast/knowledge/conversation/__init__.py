"""The parts of the conversational system graph_convqa (Jain and Lapata 2024).

Each file has one step: to remember evidence of earlier turns, to build a graph of the evidence's tokens, to
encode this graph, and to write the prompt. The system and its training both use these files.
"""

from pyfast.knowledge.conversation.entities import Entities as Entities
from pyfast.knowledge.conversation.entities import Linear as Linear
from pyfast.knowledge.conversation.entities import known_entities as known_entities
from pyfast.knowledge.conversation.entities import linearise as linearise
from pyfast.knowledge.conversation.entities import names_in as names_in
from pyfast.knowledge.conversation.evidence_memory import SHARE as SHARE
from pyfast.knowledge.conversation.evidence_memory import Memory as Memory
from pyfast.knowledge.conversation.evidence_memory import MemoryQuery as MemoryQuery
from pyfast.knowledge.conversation.evidence_memory import apply_memory as apply_memory
from pyfast.knowledge.conversation.evidence_memory import embedder as embedder
from pyfast.knowledge.conversation.graph import Chain as Chain
from pyfast.knowledge.conversation.graph import History as History
from pyfast.knowledge.conversation.graph import Parts as Parts
from pyfast.knowledge.conversation.graph import TextPrompt as TextPrompt
from pyfast.knowledge.conversation.graph import TokenGraph as TokenGraph
from pyfast.knowledge.conversation.graph import messages as messages
from pyfast.knowledge.conversation.graph import most_recent as most_recent
from pyfast.knowledge.conversation.graph import query_of as query_of
from pyfast.knowledge.conversation.graph import text_prompt as text_prompt
from pyfast.knowledge.conversation.graph import token_graph as token_graph
