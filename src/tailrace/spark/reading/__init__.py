"""How a session reads topics: registration, one plan for each query, filters, and access to files.

Modules of this package run in the process of the user, in Spark's planner, or in its tasks; each
says where.
"""
