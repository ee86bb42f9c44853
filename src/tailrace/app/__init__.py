"""An app: handlers of subscriptions that are declared in one place and run together."""
