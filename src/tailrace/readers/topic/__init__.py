"""The `topic` reader: reads a topic, also of another hub, in order per key across its scalings.

`reader` has the options, `session` an opened reader, `splits` the partitions and what they follow,
`rows` the records of a partition as rows of a commit log, and `headers` the headers of those.
"""
