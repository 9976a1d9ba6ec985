"""HTTP service, persistence and durable jobs around the explorer."""
