"""Finds rows of the schedule table by measurement, and checks the results of each candidate before
timing it.

`candidates` lists the numbers to try, the most promising by the model of times first. `judge`
compares the results of a candidate with the reference's, and then times it beside the usual
kernels; `trial` is the process that does so, which may hang. `session` goes through all candidates,
keeps a state from which it can resume, and chooses; `page` writes a report."""
