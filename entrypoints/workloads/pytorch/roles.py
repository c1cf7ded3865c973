"""Roles of layers in a network that ranks divide among them (tensor parallel, Shoeybi et al., arXiv:1909.08053).

A module says in its attribute `roles` which role each of its layers has, by the layer's name in it; "" is the module
itself. Between layers with roles, each rank has some positions of all activations (N, T, width): sequence parallel,
Korthikanti et al., arXiv:2205.05198. Attention and the feed-forward network have all positions, and some features.
"""

from __future__ import annotations

COLUMNS = "columns"  # linear: each rank has some outputs, of all positions
PACKED = "packed"  # the same of a layer with the outputs of query, key and value in a row: some of each
ROWS = "rows"  # linear: each rank has the inputs that COLUMNS left it; what comes out are sums over all ranks
STREAM = "stream"  # a normalisation: each rank has its positions
VOCABULARY = "vocabulary"  # an embedding: each rank has some rows of the table
TABLE = "table"  # an embedding: each rank has all rows, and looks up what its positions need
LOGITS = "logits"  # linear: each rank has some classes, whose loss is computed where they are
CLASSES = "classes"  # the same for a loss of all classes, after a WHOLE input
WHOLE = "whole"  # a module whose first input is needed with all positions, and which each rank computes alike
