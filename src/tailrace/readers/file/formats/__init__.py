"""File formats: each turns the bytes of a file into rows, one chunk at a time.

`format` has the contract, `lines` the base of formats made of lines.
"""
