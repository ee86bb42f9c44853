"""What people do with a hub: functions that take one and return plain values.

There is one implementation for every face. The command line prints these values, in tables or in
JSON; nothing here prints, asks or exits.
"""
