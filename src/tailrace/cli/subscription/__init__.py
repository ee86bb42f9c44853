"""The commands about subscriptions: `tailrace subscription`."""
