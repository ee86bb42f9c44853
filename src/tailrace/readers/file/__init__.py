"""The `file` reader: copies JSON lines, CSV and Parquet files, then follows them.

`reader` has the options and `session` the splits. A split finds the files (`discovery`), copies
them (`copy`) or parts of them (`ranges`), follows one file name (`follow`) or watches for new files
(`watch`). `registry`, `rotation` and `rewrite_check` decide which file is which after a rename, a
rotation or a rewrite. `formats` turns bytes into rows.
"""
