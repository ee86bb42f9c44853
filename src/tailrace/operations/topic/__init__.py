"""Operations on topics and their messages."""
