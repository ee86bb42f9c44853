"""The checksum of everything on disk: CRC-32 as zlib has it, computed four times as fast."""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
