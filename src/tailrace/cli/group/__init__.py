"""The commands about groups: `tailrace group`."""
