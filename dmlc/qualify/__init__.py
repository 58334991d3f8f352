"""Whether a device may be shipped to: what it is and promises, whether it gives known answers,
what comes of the library's tests on it, and how fast kernels are beside a copy.

`record` is what was found, as data and as JSON. `gather` finds it out, with the speeds from
`speed`; `judge` says what follows from it. `compare` tells two records apart, and `page` writes one
for people. `bundle` packs all this for a machine without a network.
"""
