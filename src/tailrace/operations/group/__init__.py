"""Operations on groups."""
