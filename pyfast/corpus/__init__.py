"""Documents (texts, tables, knowledge graphs) and the sequence of segments made from them."""

from pyfast.corpus.documents import Document as Document
from pyfast.corpus.documents import Heading as Heading
from pyfast.corpus.documents import KnowledgeGraph as KnowledgeGraph
from pyfast.corpus.documents import Outline as Outline
from pyfast.corpus.documents import Table as Table
from pyfast.corpus.documents import TextDocument as TextDocument
from pyfast.corpus.documents import Triple as Triple
from pyfast.corpus.documents import Unread as Unread
from pyfast.corpus.encode import decode as decode
from pyfast.corpus.encode import encode as encode
from pyfast.corpus.readers import Reader as Reader
from pyfast.corpus.readers import read as read
from pyfast.corpus.schema import Level as Level
from pyfast.corpus.sequence import Corpus as Corpus
