"""Score the answers of a run against gold answers, and compare runs."""

from pyfast.evaluation.cost import Prices as Prices
from pyfast.evaluation.cost import read_prices as read_prices
from pyfast.evaluation.evaluate import Figure as Figure
from pyfast.evaluation.evaluate import Report as Report
from pyfast.evaluation.evaluate import Row as Row
from pyfast.evaluation.evaluate import bootstrap_interval as bootstrap_interval
from pyfast.evaluation.evaluate import evaluate as evaluate
from pyfast.evaluation.gold import Gold as Gold
from pyfast.evaluation.metrics import Hits as Hits
from pyfast.evaluation.metrics import Metric as Metric
from pyfast.evaluation.metrics import Scored as Scored
from pyfast.evaluation.metrics import exact_match as exact_match
from pyfast.evaluation.metrics import f1 as f1
from pyfast.evaluation.metrics import hits as hits
from pyfast.evaluation.metrics import normalise as normalise
from pyfast.evaluation.metrics import of_each as of_each
