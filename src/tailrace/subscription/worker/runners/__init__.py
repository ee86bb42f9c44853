"""What calls the handlers of workers: threads, an event loop, or requests to an endpoint."""
