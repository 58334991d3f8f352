"""Qualification of a device for shipping: its properties and promises, its known answers, the
library's tests on it, and the speed of kernels relative to a copy.

`record` has the results, as data and as JSON. `gather` collects them, with the speeds from `speed`;
`judge` draws the verdict. `compare` compares two records, and `page` renders one for people.
`bundle` packs all this for a machine without a network.
"""
