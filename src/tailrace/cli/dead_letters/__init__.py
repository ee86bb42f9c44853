"""The commands about dead letters: `tailrace dlq`."""
