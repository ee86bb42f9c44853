"""Ranges of large files, which any task copies.

`division` divides a file, `range_copy` copies one range, `range_position` puts the positions of all
ranges together to the position in the whole file.
"""
