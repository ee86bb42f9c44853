"""Operations on a hub: functions that take a hub and return plain values.

The command line prints these values, as tables or as JSON. Nothing here prints, asks or exits.
"""
