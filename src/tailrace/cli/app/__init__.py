"""The command about apps: `tailrace run`."""
