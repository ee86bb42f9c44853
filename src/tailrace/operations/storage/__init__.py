"""Operations on storage: segments, compaction, disk use."""
