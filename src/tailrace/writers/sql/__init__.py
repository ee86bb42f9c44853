"""The `sql` writer: writes rows to the tables of a database, exactly once.

`writer` has the options and `session` one attempt. `changes` computes the changes of a batch,
`tables` finds and creates tables, `row_layout` and `values` turn documents into rows, `statements`
and `postgres_copy` have the SQL. `applied` stores the offsets of the rows in the database.
`database` connects, and `errors` classifies the errors of drivers.
"""
