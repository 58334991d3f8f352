"""Pictures of a graph, or of an operator, before and after fusion: SVG, DOT and text.

`diagram` says what there is to show, `compose` where it goes, and `svg`, `dot` and `text` write it.
"""
