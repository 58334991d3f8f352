"""Finds rows of the schedule table by measuring, and proves each candidate before it times it.

`candidates` lists the numbers that are tried, those that the model of times expects most of first.
`judge` holds the results of one candidate to the reference's, and only then times it, beside the
kernels that there are without it; `trial` is the process that does so, which may hang. `session`
goes through all candidates, keeps a state to go on from, and chooses; `page` tells a person.
"""
