"""Kind `convolution`: series of counts and tables seen through filters, with noise in the spectrum.

In: nothing. Out: the specification, the noise, updates, answers, plans and checks of this kind. Touches: nothing.
"""

from sketchstream.kinds.convolution.answers import FilterAnswers, answers, closed_values, decode
from sketchstream.kinds.convolution.filters import Columns, Filter, parse_filter
from sketchstream.kinds.convolution.joining import joined, tail_of
from sketchstream.kinds.convolution.layers import add_noise, new_state
from sketchstream.kinds.convolution.spec import ConvolutionSpec, Layer
from sketchstream.kinds.convolution.update import Updater

__all__ = [
    "Columns",
    "ConvolutionSpec",
    "Filter",
    "FilterAnswers",
    "Layer",
    "Updater",
    "add_noise",
    "answers",
    "closed_values",
    "decode",
    "joined",
    "new_state",
    "parse_filter",
    "tail_of",
]
