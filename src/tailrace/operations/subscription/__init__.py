"""Operations on subscriptions."""
